from .disk import (
    Removal as Removal,
    caches_of as caches_of,
    free_bytes as free_bytes,
    measure_disk as measure_disk,
    plan_removal as plan_removal,
)
from .ledger import Ledger as Ledger, Opening as Opening
from .ledger_file import ImageSet as ImageSet, LedgerFile as LedgerFile, images_in as images_in
from .records import Records as Records, stored_search as stored_search
from .retrieval_file import (
    FOLDER as FOLDER,
    THUMBNAILS as THUMBNAILS,
    ExampleKind as ExampleKind,
    RetrievalFile as RetrievalFile,
    Thumbnails as Thumbnails,
    thumbnails_of as thumbnails_of,
)
from .runs import (
    CampaignFolder as CampaignFolder,
    RunFolder as RunFolder,
    find_runs as find_runs,
    mlflow_page as mlflow_page,
    refuse_member as refuse_member,
)
from .score_files import (
    Baselines as Baselines,
    BaselineScoring as BaselineScoring,
    FailedScoring as FailedScoring,
    Scored as Scored,
    ScoredBaseline as ScoredBaseline,
    ScoredModel as ScoredModel,
    ScoredOpening as ScoredOpening,
    Scoring as Scoring,
    baseline_entry as baseline_entry,
    frozen_baselines as frozen_baselines,
    save_baselines as save_baselines,
    scored_openings as scored_openings,
    validate_untrained as validate_untrained,
)
from .scoring import (
    embeddings_of as embeddings_of,
    images_of as images_of,
    kept_metrics as kept_metrics,
    kept_problem as kept_problem,
    score as score,
    test_scores as test_scores,
)
from .selection import (
    EXPORTED as EXPORTED,
    Confirmation as Confirmation,
    Selection as Selection,
    choose as choose,
    confirmations as confirmations,
    exported_trial as exported_trial,
    finalists as finalists,
    recommend as recommend,
    rule_in_words as rule_in_words,
    study_digest as study_digest,
    unmet_sentence as unmet_sentence,
)
from .status import (
    TrialRow as TrialRow,
    param_names as param_names,
    status_of as status_of,
    trial_rows as trial_rows,
    trials_csv as trials_csv,
)
from .writable import WritableRecords as WritableRecords, open_search as open_search
