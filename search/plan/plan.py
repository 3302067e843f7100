"""Everything that is fixed before a search's first trial, and the training that each trial stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from optuna.trial import FrozenTrial

from search.config.search_config import SearchConfig
from search.plan.disk_usage import default_cache
from search.plan.runs import RunFolder, stored_split
from search.selection.ledger import Ledger
from search.selection.selection import SealedTest
from search.stages import Stage, short_study_name
from search.study.budget import Budget
from search.study.samplers import SAMPLERS
from search.trials import ByEpoch, ByFold, TrialValue, configuration_of, epochs_of
from spaces.search_space import SearchSpace
from trainables.data.augment import short_side_needed
from trainables.data.split import ClassSplit
from trainables.data.store.spec import StoreSpec
from trainables.files import as_path, write_json
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
            short_side=self._short_side,
            cache=self._cache,
        )

    @property
    def sealed_test(self) -> SealedTest:
        """The test classes, under their seal."""
        return SealedTest(
            dataset=self.config.dataset.source, split=self.split, short_side=self._short_side, cache=self._cache
        )

    @property
    def _cache(self) -> str:
        return self.config.dataset.cache or default_cache()

    @property
    def _short_side(self) -> int:
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


# What the training images of a search are, by their content, once they are decoded.


def with_training_images(plan: Plan) -> Plan:
    """``plan`` with the digest of its decoded training images in its split.

    Raises:
        Mistakes: they are not those that the search, or the one that it begins with, was trained on.
    """
    from trainables.data.store.contents import named_digest

    digest = named_digest(_by_class(plan))
    name, begun = plan.config.name, plan.split.images
    if origin := plan.config.search.origin:
        name, begun = origin, begun or stored_split(RunFolder(plan.folder.runs, origin)).images
    if begun not in (None, digest):
        raise Mistakes(
            f"The images of the training classes are not those that {name} began with, although their names are; put "
            "them back, or give the search a new name."
        )
    return replace(plan, split=replace(plan.split, images=digest))


def note_opened_images(plan: Plan) -> str | None:
    """Write down, for a search that begins, how many of its classes hold images of a test set that was opened.

    Gives the sentence; None where there is none. What others open later was not known to who chose these classes.
    """
    from trainables.data.store.contents import fingerprints

    opened = Ledger(plan.folder.openings).opened_among(fingerprints(_by_class(plan)))
    if opened is None:
        return None
    sentence = f"training on images of an opened test set: {opened}"
    write_json(plan.folder.trained_on_opened, {"told": sentence})
    return sentence


def _by_class(plan: Plan) -> dict[str, list[str]]:
    from trainables.data.store.contents import digests_by_class, read_contents

    return digests_by_class(read_contents(plan.images.make()))
