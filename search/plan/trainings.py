"""The trainings that follow from a plan: what each trial of a stage stands for."""

from dataclasses import replace

from optuna.trial import FrozenTrial

from search.plan.plan import Plan
from search.study.configurations import configuration_of
from search.study.names import Stage, short_study_name
from search.study.records import epochs_of
from trainables.files.storage import ask
from trainables.files.whole import as_path
from trainables.mistakes import Mistakes
from trainables.spec import TrialSpec


def training_of(plan: Plan, loss: str, stage: Stage, trial: FrozenTrial) -> TrialSpec:
    """The training that ``trial`` stands for."""
    config = plan.config
    configuration = configuration_of(trial)
    settings, training = config.training_of(loss), configuration.training
    split = (plan.split, *plan.further_splits)[trial.user_attrs.get("split", 0)]
    on_all = stage is Stage.TEST and config.final.train_on == "all"
    if on_all:
        epochs = trial.user_attrs["epochs"]
        warmup = training.get("warmup_epochs", settings.warmup_epochs)
        training |= {"epochs": epochs, "warmup_epochs": min(warmup, epochs)}
    spec = TrialSpec(
        loss=config.loss(loss).key,
        hyperparameters=configuration.hyperparameters,
        model=config.model,
        training=replace(settings, **training),
        images=plan.images,
        train_classes=(*split.train, *split.validation) if on_all else split.train,
        validation_classes=() if on_all else split.validation,
        merge=split.merge,
        folds=() if on_all else split.folds,
        metrics=plan.metrics,
        objective=config.search.objective,
        gallery_seed=split.seed if config.metrics.gallery == "training_half" and not on_all else None,
        seed=trial.user_attrs["seed"],
        directory=trial_directory(plan, loss, stage, trial.number),
        origin={
            "search": config.name,
            "study": short_study_name(loss, stage),
            "trial": trial.number,
            **{name: trial.user_attrs[name] for name in ("configuration", "role", "fold") if name in trial.user_attrs},
            "split": split.digest,
        },
    )
    fold = trial.user_attrs.get("fold")
    return spec if fold is None else spec.of_fold(fold)


def trial_directory(plan: Plan, loss: str, stage: Stage, number: int) -> str:
    """The folder or URL of a trial's checkpoints and log."""
    return f"{plan.checkpoint_storage}/{plan.config.name}/trials/{short_study_name(loss, stage)}/{number:04d}"


def best_checkpoint(trial: FrozenTrial, directory: str) -> str:
    """Where the best model of a training for the test is.

    Raises:
        Mistakes: it is gone.
        StorageFailure: its place fails.
    """
    kept = [record["checkpoint"] for record in epochs_of(trial) if record["checkpoint"]]
    address = f"{directory}/{kept[-1]}"
    path = as_path(address)
    if not ask(path, path.is_file):
        raise Mistakes(f"The trained model {address} is gone; restore it, or search under a new name.")
    return address
