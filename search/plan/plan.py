"""Everything that is fixed before a search's first trial, and the training that each trial stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from optuna.trial import FrozenTrial

from search.config.search_config import SearchConfig
from search.plan.disk_usage import default_cache
from search.plan.runs import RunFolder
from search.stages import Stage, short_study_name
from search.study import SAMPLERS, Budget
from search.trials import ByEpoch, ByFold, TrialValue, configuration_of, epochs_of
from spaces.search_space import SearchSpace
from trainables.data.augment import short_side_needed
from trainables.data.split import ClassSplit
from trainables.data.store.spec import StoreSpec
from trainables.files import as_path
from trainables.mistakes import Mistakes
from trainables.spec import TrialSpec
from trainables.storage import ask

# Everything that is fixed before a search's first trial: its split, its spaces and its images.


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A search file together with what follows from it before anything is trained."""

    config: SearchConfig
    folder: RunFolder
    split: ClassSplit
    spaces: Mapping[str, SearchSpace]
    further_splits: tuple[ClassSplit, ...] = ()
    """Other splits of the same training half, which the noise stage and confirmations validate on."""
    notices: tuple[str, ...] = ()
    """What the user should know of how the search file was taken."""

    @cached_property  # every trial's spec names them, and the data set is read once
    def images(self) -> StoreSpec:
        """The images of the training half, and of it alone."""
        half = {*self.split.train, *self.split.validation}
        dataset = self.config.dataset.source
        return StoreSpec(
            dataset=dataset,
            class_names=tuple(name for name in dataset.classes() if name in half),
            short_side=self.short_side,
            cache=self.cache,
        )

    @property
    def cache(self) -> str:
        """The folder of the decoded images."""
        return self.config.dataset.cache or default_cache()

    @property
    def short_side(self) -> int:
        """The short side, in pixels, that images are stored with."""
        training = self.config.training
        return short_side_needed(training.augment, training.frame, self.config.dataset.store_size)

    @property
    def checkpoint_storage(self) -> str:
        """The folder or URL that all nodes share: checkpoints go below it."""
        return (self.config.checkpoints.storage_path or str(self.folder.runs.resolve())).rstrip("/")

    @property
    def metrics(self) -> tuple[str, ...]:
        """What each epoch's validation computes: the metrics asked for, and the objective."""
        return tuple(dict.fromkeys((*self.config.metrics.validation, self.config.search.objective)))

    @property
    def steps(self) -> int:
        """After how many epochs, or folds, a search trial is done."""
        return len(self.split.folds) or self.config.training.epochs

    @property
    def unit(self) -> str:
        """What :attr:`steps` counts."""
        return self.trial_value(Stage.SEARCH).unit

    def trial_value(self, stage: Stage) -> TrialValue:
        """How the records of a trial of ``stage`` give its value."""
        objective = self.config.objective
        if self.split.folds and stage is not Stage.TEST:
            return ByFold(objective=objective, epochs=self.config.training.epochs)
        return ByEpoch(objective=objective)

    def budget(self, loss: str) -> Budget:
        """How much is searched for ``loss``."""
        return search_budget(self.config, loss, self.spaces[loss])


def search_budget(config: SearchConfig, loss: str, space: SearchSpace) -> Budget:
    """How much is searched for ``loss`` in ``space``; a trial under cross-validation trains all folds."""
    search = config.search
    return Budget(
        trials=search.trials,
        epochs=search.epochs,
        epochs_each=config.training.epochs * (config.split.folds or 1),
        sampler=SAMPLERS[search.sampler](
            loss=loss, space=space, seed=search.seed, trials=search.trials, prior=search.prior
        ),
    )


# The trainings that follow from a plan: what each trial of a stage stands for.


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
        hyperparameters=configuration.loss,
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
            **{name: trial.user_attrs[name] for name in ("source_trial", "role", "fold") if name in trial.user_attrs},
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


# What the training images of a search are, by their content, once they are decoded.
