"""The plan of a search, fixed before its first trial: its spaces and the training of each trial; and its growth."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from search.config.search_config import SearchConfig, differences
from search.config.sections import SplitSection
from search.config.validation import Findings
from search.difference import FEW_CLASSES, Basis, confirms_on_halves, shown_points
from search.records.runs import RunFolder, trials_in
from search.stages import Stage, short_study_name
from search.study import Budget
from search.tables import SAMPLERS
from search.trials import epochs_of, params_of
from spaces.search_space import SECTIONS, SearchSpace, search_space, search_space_of_trainable
from spaces.space import MODEL, TRAINING
from trainables.common.errors import InvalidInput, Mistake, listed, suggestion
from trainables.common.files import absolute, as_path
from trainables.common.storage import ask
from trainables.data import short_side_needed
from trainables.data.batch_samplers import fitting_batch
from trainables.data.dataset import GALLERY
from trainables.data.split import ClassSplit, learned_sizes
from trainables.data.store.store_spec import StoreSpec
from trainables.metrics import is_bounded, metric_name
from trainables.models.backbones import on_features
from trainables.training.spec import COSTS, TrialSpec

BY_LOSS = "training_by_loss"


def default_cache() -> str:
    """Return the folder for decoded images if the search file names none."""
    return absolute(os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "holdout"))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A search file with its class split, search spaces and images."""

    config: SearchConfig
    folder: RunFolder
    split: ClassSplit
    spaces: Mapping[str, SearchSpace]
    notices: tuple[str, ...] = ()
    """Messages for the user about how the search file was interpreted."""
    openings_left: int | None = None
    """Openings that the vault of a search that begins has left; None without one, and for others."""

    @cached_property  # every trial asks, and listing the files of ten thousand classes takes seconds
    def classes(self) -> Mapping[str, Sequence[str]]:
        """The keys of the images of each class of both halves."""
        return self.config.dataset.source.classes()

    @cached_property
    def queries(self) -> Mapping[str, int]:
        """The number of images of each class that are queries."""
        parts = self.config.dataset.source.parts()
        return {name: sum(parts.get(key) != GALLERY for key in keys) for name, keys in self.classes.items()}

    @cached_property
    def images(self) -> StoreSpec:
        """The images of the training half only."""
        half, source = {*self.split.train, *self.split.validation}, self.config.dataset.source
        names = tuple(name for name in self.classes if name in half)
        return StoreSpec(dataset=source, class_names=names, short_side=self.short_side, cache=self.cache)

    @property
    def cache(self) -> str:
        return self.config.dataset.cache or default_cache()

    @property
    def short_side(self) -> int:
        """The short side of stored images, in pixels; a user-defined training gets them as large as they may be."""
        if self.config.trainable is not None:
            return self.config.dataset.store_size
        training = self.config.training
        return short_side_needed(training.augment, training.frame, self.config.dataset.store_size)

    @property
    def checkpoint_storage(self) -> str:
        """The folder or URL for checkpoints, shared by all nodes."""
        return (self.config.checkpoints.storage_path or str(self.folder.runs.resolve())).rstrip("/")

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of each epoch's validation: those of the file, of the objective and of the constraints."""
        measured = (name for name in self.config.measured if name not in COSTS)
        return tuple(dict.fromkeys((*self.config.metrics.validation, *measured)))

    @property
    def steps(self) -> int:
        """The number of epochs of a whole search trial, those of all folds."""
        return self.config.training.epochs * (len(self.split.folds) or 1)

    @property
    def on_halves(self) -> bool:
        """True if the choice is confirmed on two halves of the training classes."""
        return bool(self.split.halves) and confirms_on_halves(self.config.selection.on, self.split.validating)

    @property
    def confirmation_seeds(self) -> int:
        """The number of fresh seeds of a finalist."""
        return self.config.selection.seeds or (1 if self.on_halves else 2)

    @property
    def basis(self) -> Basis:
        split, folds = self.split, len(self.split.folds)
        validating = f"{split.validating} {'training' if folds else 'validation'} classes"
        searched = f"on the {validating} in {folds} folds" if folds else f"on the {validating}"
        halves = f"on halves of the {sum(map(len, split.halves))} training classes"
        return Basis(
            objective=self.config.objective,
            validation=searched,
            confirmation=halves if self.on_halves else f"{searched} with fresh seeds",
            better_by=self.config.selection.better_by,
        )

    @property
    def resolution(self) -> str | None:
        """A sentence on the differences that the validation classes can show; None if they are not in points."""
        split = self.split
        if not is_bounded(metric_name(self.config.objective)):
            return None
        validating, training = split.validating, sum(map(len, split.halves))
        points, model = shown_points(validating), self.config.model
        text = f"{validating} classes validate: differences below about {points} are noise between classes"
        if self.on_halves:
            text += f"; the choice is confirmed on halves of all {training} training classes ({shown_points(training)})"
        by_default = not split.folds and self.config.split.ratio == SplitSection().ratio
        if by_default and validating < FEW_CLASSES and (model.is_frozen or on_features(model.backbone)):
            text += (
                ". On frozen features a search chooses better if half of the training classes validate: set "
                "split.ratio to 0.5, and final.train_on to all"
            )
        return f"{text}."

    @property
    def vault_sentence(self) -> str | None:
        """A sentence on the vault that has the test classes; None without one."""
        if not (vault := dict(self.split.vault)):
            return None
        what = "the labels of" if vault["labels_only"] == "True" else "all of"
        return f"The vault {vault['key'][:12]} has {what} {vault['items']} test items of {vault['classes']} classes."

    @property
    def doubt(self) -> str | None:
        """A sentence if the choice rests on too few classes to open the test for it; None otherwise."""
        if self.on_halves or self.split.validating >= FEW_CLASSES:
            return None
        return (
            f"The choice of {self.config.name} rests on {self.split.validating} validation classes alone and may be "
            "mostly luck, and a test set is opened once."
        )

    def budget(self, loss: str) -> Budget:
        return search_budget(self.config, loss, self.spaces[loss])


def search_budget(config: SearchConfig, loss: str, space: SearchSpace) -> Budget:
    """Return the search budget of ``loss`` in ``space``; a trial under cross-validation trains all folds."""
    search = config.search
    return Budget(
        trials=search.trials,
        epochs=search.epochs,
        epochs_each=config.training.epochs * (config.split.folds or 1),
        hours=search.hours,
        sampler=SAMPLERS[search.sampler](loss=loss, space=space, seed=search.seed, trials=search.trials),
    )


def training_of(plan: Plan, loss: str, stage: Stage, trial: FrozenTrial) -> TrialSpec:
    config = plan.config
    params, attributes = params_of(trial), trial.user_attrs
    settings, training = config.training_of(loss), params.training
    split = plan.split
    train_classes, validation_classes, folds = split.train, split.validation, split.folds
    on_all = stage is Stage.TEST and config.final.train_on == "all"
    if on_all:
        epochs = attributes["epochs"]
        warmup = training.get("warmup_epochs", settings.warmup_epochs)
        training |= {"epochs": epochs, "warmup_epochs": min(warmup, epochs)}
        train_classes, validation_classes, folds = (*split.train, *split.validation), (), ()
    if half := attributes.get("half"):
        (train_classes, validation_classes), folds = split.half(half), ()
        if config.trainable is None:  # half of the classes may not fill a batch
            batches, sizes = replace(settings, **training), learned_sizes(split, plan.classes, train_classes)
            fitting = fitting_batch(batches.sampler, sizes, batches.batch_size, batches.images_per_class)
            assert fitting is not None, "halves whose classes fill no batch are refused before the start"
            training |= {"batch_size": fitting}
    spec = TrialSpec(
        loss=config.loss(loss).key,
        trainable=config.trainable,
        hyperparameters=params.loss,
        model=config.model.changed(params.model),
        training=replace(settings, **training),
        schedule_epochs=settings.epochs if on_all else None,  # the rates of the trainings whose best epoch it was
        images=plan.images,
        train_classes=train_classes,
        validation_classes=validation_classes,
        merge=split.merge,
        label_noise=split.label_noise,
        noise_seed=split.seed,
        folds=folds,
        metrics=plan.metrics,
        objective=config.search.objective,
        costs=tuple(name for name in config.measured if name in COSTS),
        needed=tuple(name for name in config.measured if name not in (*COSTS, config.search.objective)),
        by_class=stage is Stage.SELECT,
        checked=stage is Stage.SEARCH and trial.number == 0,
        gallery_seed=split.seed if config.metrics.gallery == "training_half" and not on_all else None,
        seed=attributes["seed"],
        directory=trial_directory(plan, loss, stage, trial.number),
        origin={
            "search": config.name,
            "study": short_study_name(loss, stage),
            "trial": trial.number,
            **{name: attributes[name] for name in ("source_trial", "role", "half", "fold") if name in attributes},
            "split": split.digest,
        },
    )
    fold = attributes.get("fold")
    return spec if fold is None else spec.of_fold(fold)


def trial_directory(plan: Plan, loss: str, stage: Stage, number: int) -> str:
    """Return the folder or URL of a trial's checkpoints and log."""
    return f"{trials_in(plan.checkpoint_storage, plan.config.name)}/{short_study_name(loss, stage)}/{number:04d}"


def best_checkpoint(trial: FrozenTrial, directory: str) -> str:
    """Return the path or URL of the best model of a training for the test; raise if it does not exist."""
    kept = [record["checkpoint"] for record in epochs_of(trial) if record["checkpoint"]]
    address = f"{directory}/{kept[-1]}"
    path = as_path(address)
    if not ask(path, path.is_file):
        raise InvalidInput(f"The trained model {address} is missing; restore it, or search under a new name.")
    return address


# The losses' search spaces.


def check_spaces(found: Findings, config: SearchConfig, *, accepted: bool = False) -> dict[str, SearchSpace]:
    """Check the losses' search spaces and return the valid ones.

    Spaces that were ``accepted`` when their search began are not tried on the losses again, which imports torch.
    """
    if found.replaced("losses") or found.replaced("trainable"):
        return {}
    found.add(_other_losses(config))
    for_training, for_model = (config.space.get(section, {}) for section in SECTIONS)
    if config.trainable is not None:
        (part,) = config.losses
        space = found.check(lambda: search_space_of_trainable(part, config.space.get(part.name, {})), "trainable")
        if space is not None:
            found.add(search_budget(config, part.name, space).problems())
        return {} if space is None else {part.name: space}
    spaces = {}
    for loss in config.losses:
        wishes = config.space.get(loss.name, {})
        reliable = partial(_reliable, found, loss.name)
        known = reliable(for_training)
        own = {**wishes, TRAINING: reliable(wishes[TRAINING])} if TRAINING in wishes else wishes
        training = config.training_of(loss.name)
        shared = {TRAINING: known, MODEL: for_model}
        space = found.check(
            partial(search_space, loss, training, own, shared, model=config.model, checked=not accepted)
        )
        if space is not None:
            spaces[loss.name] = space
            if (known, own) == (for_training, wishes):
                found.add(search_budget(config, loss.name, space).problems())
    return spaces


def _other_losses(config: SearchConfig) -> Iterator[Mistake]:
    known = (*config.loss_names, *SECTIONS)
    for name in config.space:
        if name not in known:
            names = ", ".join(config.loss_names)
            text = f": this is not one of the search's losses ({names}){suggestion(name, known)}"
            yield Mistake(f"space.{name}", text, "add it to losses or remove it", ("losses",))


def _reliable(found: Findings, loss: str, wishes: Any) -> Any:
    """Return the ranges for training settings, without those that depend on an entry that was left out."""
    if not isinstance(wishes, Mapping):
        return wishes
    sections = (TRAINING, f"{BY_LOSS}.{loss}")

    def is_reliable(name: str) -> bool:
        keys = (name, "epochs") if name == "warmup_epochs" else (name,)
        return not any(found.touched(f"{section}.{key}") for section in sections for key in keys)

    return {name: wish for name, wish in wishes.items() if is_reliable(name)}


# The growth of a stored search: more trials, further losses, wider ranges.


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What a search file asks for beyond what its search began with.

    Attributes:
        trials: the number of trials; None unless it is larger.
        losses: the further losses.
        wider: the hyperparameters whose range is wider.
    """

    trials: int | None = None
    losses: tuple[str, ...] = ()
    wider: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.trials or self.losses or self.wider)

    def covers(self, key: str) -> bool:
        """Return True if the entry ``key`` may differ because of the further losses or the wider ranges."""
        section, _, rest = key.partition(".")
        if section in ("space", "training_by_loss") and rest.partition(".")[0] in self.losses:
            return True
        return bool(self.losses if section == "losses" else self.wider and section == "space")

    def __str__(self) -> str:
        trials = f"{self.trials} trials" if self.trials else ""
        losses = f"the loss{'es' * (len(self.losses) > 1)} {listed(self.losses)}" if self.losses else ""
        wider = f"a wider range of {listed(self.wider)}" if self.wider else ""
        return " and ".join(filter(None, (trials, losses, wider)))


def growth(before: SearchConfig, after: SearchConfig) -> Growth:
    """Return what ``after`` has beyond ``before``; a space that is not wider everywhere it differs is no growth.

    A wider range that moves a default is none either: trial 0 would no longer be the default.
    """
    kept = all(loss in after.losses for loss in before.losses)
    return Growth(
        trials=after.search.trials if after.search.trials > before.search.trials else None,
        losses=tuple(loss.name for loss in after.losses if loss not in before.losses) if kept else (),
        wider=_wider(before, after) if kept else (),
    )


def _wider(before: SearchConfig, after: SearchConfig) -> tuple[str, ...]:
    """Return the hyperparameters whose range is wider in ``after``; none if another one differs otherwise."""
    then, now = (config.model_dump(mode="json", include={"space"}) for config in (before, after))
    if not any(key.startswith("space") for key, _, _ in differences(then, now)):
        return ()
    found = Findings[SearchConfig]()
    old, new = (check_spaces(found, config, accepted=True) for config in (before, after))
    if found.sentences or not all(_is_as_wide(old[loss], new[loss]) for loss in before.loss_names):
        return ()
    changed = (
        name
        for loss in before.loss_names
        for name, parameter in new[loss].parameters.items()
        if parameter.distribution != old[loss].parameters[name].distribution
    )
    return tuple(dict.fromkeys(changed))


def _is_as_wide(old: SearchSpace, new: SearchSpace) -> bool:
    if old.default != new.default or old.parameters.keys() != new.parameters.keys():
        return False
    pairs = [(entry, new.parameters[name]) for name, entry in old.parameters.items()]
    return all(entry.when == wider.when and wider.covers(entry) for entry, wider in pairs)


def in_order(before: SearchConfig, after: SearchConfig) -> SearchConfig:
    """Return ``after`` with the losses of ``before`` first, if it has them all: the first study holds the sessions."""
    if not all(loss in after.losses for loss in before.losses):
        return after
    further = tuple(loss for loss in after.losses if loss not in before.losses)
    return after.model_copy(update={"losses": (*before.losses, *further)})
