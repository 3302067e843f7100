from .budget import (
    Budget as Budget,
)
from .pruners import (
    Pruner as Pruner,
)
from .queued import (
    QueuedStage as QueuedStage,
    QueuedStudy as QueuedStudy,
    RunningTrial as RunningTrial,
    TrialListener as TrialListener,
)
from .sampler import (
    is_blind as is_blind,
    without_model as without_model,
)
from .storage.driver import (
    DriverStorage as DriverStorage,
)
from .storage.open import (
    StorageCopy as StorageCopy,
    close_storage as close_storage,
    delete_studies as delete_studies,
    open_storage as open_storage,
    study_names as study_names,
)
from .storage.read import (
    read_storage as read_storage,
    stored_attributes as stored_attributes,
    stored_reports as stored_reports,
    stored_tally as stored_tally,
    stored_trials as stored_trials,
)
from .study import (
    LossStudy as LossStudy,
    pruning_sentence as pruning_sentence,
)
from .trial_queue import (
    TrialQueue as TrialQueue,
)
