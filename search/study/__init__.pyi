from .journal import JournalReader as JournalReader, StudyCounts as StudyCounts
from .pruners import Pruner as Pruner
from .sampler import STOPPED as STOPPED, Budget as Budget, Sampler as Sampler
from .study import (
    LossStudy as LossStudy,
    StudyStorage as StudyStorage,
    copy_studies as copy_studies,
    open_studies as open_studies,
    pruning_sentence as pruning_sentence,
    read_studies as read_studies,
)
from .trial_queue import (
    QueuedStage as QueuedStage,
    QueuedStudy as QueuedStudy,
    RunningTrial as RunningTrial,
    TrialListener as TrialListener,
    TrialQueue as TrialQueue,
)
