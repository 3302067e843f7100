"""The sections of the search file, in its order."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property, partial
from typing import Annotated, Any, Literal

from fsspec import available_protocols
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    field_validator,
    model_validator,
)

from search.config.names import allowed_measure, allowed_metric, allowed_objective, known_name, plain_name, unique
from search.config.parts import build_dataset
from search.config.tables import AUTO, PRUNERS, SAMPLERS, known_engine
from search.config.validation import Validation, validate
from search.goal import IDEAL, bound_text
from search.secrets import is_reference, without_a_password
from search.stages import BASELINES, Rule
from trainables.data import Dataset
from trainables.data.units import CLASS, GROUP, TIME, UnitDataset
from trainables.losses import LOSSES, LossPart, loss_part
from trainables.mistakes import Mistakes, raise_if_any, suggestion
from trainables.parts import is_own
from trainables.spec import COSTS
from trainables.training.config import TrainingConfig


class ConfigSection(BaseModel):
    """Base of all sections: frozen, without type conversions, unknown keys refused.

    The docstring below a field describes its key, in :mod:`search.config.keys`' form.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False, serialize_by_alias=True)


Names = Annotated[tuple[str, ...], Field(min_length=1)]
Address = Annotated[str, Field(min_length=1), AfterValidator(without_a_password)]
"""An address whose password, if it has one, is a reference such as ``${DATABASE_PASSWORD}``."""
Metric = Annotated[str, AfterValidator(allowed_metric)]
Metrics = Annotated[tuple[Metric, ...], Field(min_length=1)]
Objectives = Annotated[tuple[Annotated[str, AfterValidator(allowed_objective)], ...], Field(min_length=1)]
Constraints = dict[Annotated[str, AfterValidator(allowed_measure)], Annotated[str, AfterValidator(bound_text)]]

MOST_SPLITS = 100
"""Limit of additional splits, all of which are made before a search begins."""


# The images and their split.


class DatasetSection(ConfigSection):
    """The data set. Keys beyond these five are its options. The code of a user-defined class is run."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, ignored_types=(cached_property,))

    name: str
    """A data set of `holdout datasets`, or the import path of your own. Other keys of the section are its options.
    Example: folder.
    """
    root: str | None = None
    """The folder of the images, with one sub-folder per class for `folder`. Example: /data/birds."""
    file: str | None = None
    """The file of the embeddings, for `features`: `.npz`, `.parquet` or `.safetensors`. Example: texts.npz."""
    store_size: int = Field(default=256, ge=8)
    """The short side, in pixels, to which images are reduced once, when they are decoded."""
    cache: str | None = None
    """The folder of the decoded images; null for the user's cache. Example: /fast/holdout."""

    @field_validator("root", "file", "cache")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        # A search may be resumed from another folder.
        return None if path is None else os.path.abspath(os.path.expanduser(path))

    @model_validator(mode="after")
    def _buildable(self) -> "DatasetSection":
        _ = self.source
        return self

    @cached_property
    def source(self) -> Dataset:
        """The data set itself."""
        options = dict(self.model_extra or {})
        options |= {key: path for key, path in (("root", self.root), ("file", self.file)) if path is not None}
        return build_dataset(self.name, options)


OF_CLASS, OF_GROUP, OF_TIME = ("merge", "label_noise"), ("validation", "test"), ("until", "test_from")
"""Keys of a split by class, by group, and by time."""


class SplitSection(ConfigSection):
    """The validation classes: a fixed part of the training classes, or with ``folds`` each part in turn.

    In a split by group or time, groups or periods take the place of classes (:mod:`trainables.data.units`).
    """

    by: Literal["class", "group", "time"] = "class"
    """The unit that is divided and sealed: classes; or, for [tasks with the same classes
    everywhere](own_training.md#a-split-by-group-or-time), the groups of the items, or their times.
    """
    until: str | int | float | None = None
    """For a split by time: the date or number at which validation begins. Example: "2024-03-01"."""
    test_from: str | int | float | None = None
    """For a split by time: the date or number at which the test begins. Example: "2024-06-01"."""
    validation: Names | None = None
    """For a split by group: the groups that validate; null: a share of the training groups. Example: [user-07]."""
    test: Names | None = None
    """For a split by group: the groups that test; null: the second half of all groups. Example: [user-08, user-09]."""
    ratio: float = Field(default=0.9, gt=0, lt=1)
    """The share of the training classes that train; the others validate."""
    seed: int = 0
    """The seed that draws the validation classes."""
    folds: int | None = Field(default=None, ge=2)
    """The number of parts of a cross-validation over the training classes: a trial's value is the mean over its folds.
    Null: one fixed part validates. Example: 4.
    """
    merge: int | None = Field(default=None, ge=2)
    """The number of consecutive training classes that are learned as one. Example: 2."""
    label_noise: float = Field(default=0.0, ge=0, lt=1)
    """The probability of a wrong label for each training image; validation and test keep the true ones. Example: 0.2.
    """
    allow_overlap: int = Field(default=0, ge=0)
    """The number of test images that may be training images, too. May change when a search is resumed."""

    @model_validator(mode="after")
    def _keys_of_its_unit(self) -> "SplitSection":
        raise_if_any(list(self._other_keys()))
        return self

    def _other_keys(self) -> Iterator[str]:
        """Yield the keys that do not belong to a split by this unit, and those that are missing."""
        default = SplitSection.model_fields
        changed = [name for name in default if getattr(self, name) != default[name].default]
        rule = ("ratio", "folds")
        wrong = {CLASS: OF_TIME + OF_GROUP, GROUP: OF_TIME + OF_CLASS, TIME: OF_GROUP + OF_CLASS + rule}[self.by]
        for name in changed:
            if name in wrong:
                yield f"{name} is {getattr(self, name)!r}, which a split by {self.by} does not use; remove it."
        given = self.by == GROUP and not {*OF_GROUP}.isdisjoint(changed)
        needed = OF_TIME if self.by == TIME else OF_GROUP if given else ()
        for name in needed:
            if getattr(self, name) is None:
                yield f"{name} is missing; a split by {self.by} needs {' and '.join(needed)}."
        if self.by == GROUP and self.test is not None:
            for name in changed:
                if name in rule:
                    yield f"{name} is {getattr(self, name)!r}, and the groups of each part are named; remove one."

    @model_validator(mode="after")
    def _one_protocol(self) -> "SplitSection":
        if self.folds is not None and self.ratio != SplitSection.model_fields["ratio"].default:
            raise Mistakes(
                f"folds is {self.folds} and ratio {self.ratio}; each fold validates on its own part of the classes, "
                "so leave the ratio out, or folds null for one fixed part."
            )
        return self

    def divided(self, dataset: Dataset) -> Dataset:
        """Return ``dataset``, with its groups or periods in the place of classes if these are divided."""
        if self.by == CLASS:
            return dataset
        return UnitDataset(
            source=dataset,
            by=self.by,
            until=self.until,
            test_from=self.test_from,
            validation=self.validation or (),
            test=self.test or (),
        )


# The losses.

LOSS_KEYS = {"name", "part"}
"""The keys of a user-defined loss with a name of its own."""

NOT_LOSSES = ("training", "model")
"""Keys of the section ``space`` that are not losses, and so cannot name one."""


def _loss(entry: Any) -> LossPart:
    """Return the loss of one entry.

    It is the name of a built-in loss, an import path, or ``{name: circle, part: "mylab.losses:CircleLoss"}``. The last
    form imports nothing, so that its search can be read without the user's code.
    """
    if isinstance(entry, LossPart):
        return entry
    if isinstance(entry, Mapping):
        name, path = entry.get("name"), entry.get("part")
        if set(entry) != LOSS_KEYS or not isinstance(name, str) or not is_own(path):
            raise Mistakes(
                "a loss of your own has the keys name and part, as in {name: circle, part: 'mylab.losses:CircleLoss'}; "
                f"it is {dict(entry)!r}."
            )
        return _well_named(LossPart(name=name, path=path))
    if not isinstance(entry, str):
        raise Mistakes(f"{entry!r} is not a loss; give a name, or the import path of your own.")
    if is_own(entry):
        return _well_named(loss_part(entry))
    if entry not in LOSSES:
        raise Mistakes(
            f"{entry or repr(entry)} is not known{suggestion(entry, LOSSES)}; choose one of {', '.join(LOSSES)}, or "
            "give the import path of your own, such as mylab.losses:CircleLoss."
        )
    return loss_part(entry)


_TAKEN: Mapping[str, Collection[str]] = {
    "a built-in loss": LOSSES,
    "a section of space": NOT_LOSSES,
    "a network without training in the results": BASELINES,
}


def _well_named(loss: LossPart) -> LossPart:
    """Return a user-defined loss; raise if its name cannot be used."""
    try:
        plain_name(loss.name)
    except ValueError:
        raise Mistakes(
            f"{loss.path} would be called {loss.name!r}, which cannot name a folder; give it another name, as in "
            f"{{name: mine, part: '{loss.path}'}}."
        ) from None
    for taken, names in _TAKEN.items():
        if loss.name in names:
            raise Mistakes(
                f"{loss.path} would be called {loss.name}, which is the name of {taken}; give it another one, as in "
                f"{{name: my_{loss.name}, part: '{loss.path}'}}."
            )
    return loss


def _as_written(loss: LossPart) -> str | dict[str, str]:
    return loss.name if loss.path is None else {"name": loss.name, "part": loss.path}


def _unique(losses: tuple[LossPart, ...]) -> tuple[LossPart, ...]:
    unique([loss.name for loss in losses])
    return losses


Loss = Annotated[LossPart, PlainValidator(_loss), PlainSerializer(_as_written)]
Losses = Annotated[tuple[Loss, ...], Field(min_length=1), AfterValidator(_unique)]


# Settings of the training that differ for a loss.

TrainingByLoss = dict[str, dict[str, Any]]
"""For each loss the training settings that differ from the section ``training``."""

SHARED = ("epochs", "image_size", "resize_size", "resize_square", "augment")
"""Settings that cannot differ: all losses share the pruner's rungs, the budget in epochs, and the stored images."""


class _Settings(ConfigSection):
    """The section ``training``, validated by itself."""

    training: TrainingConfig


def training_of_loss(training: TrainingConfig, own: Mapping[str, Any]) -> TrainingConfig:
    """Return ``training`` updated with the settings ``own``; the keys of a schedule are merged.

    Raises:
        Mistakes: all mistakes in ``own``.
    """
    return _over(training, own).result().training


def _over(training: TrainingConfig, own: Mapping[str, Any]) -> Validation[_Settings]:
    content = asdict(training)
    for name, value in own.items():
        under = content.get(name)
        content[name] = {**under, **value} if isinstance(under, dict) and isinstance(value, dict) else value
    return validate(_Settings, {"training": content})


def training_mistakes(by_loss: TrainingByLoss, training: TrainingConfig, losses: Sequence[str]) -> Iterator[str]:
    """Yield the mistakes in the settings ``by_loss`` of a search over ``losses``."""
    for loss, own in by_loss.items():
        key = f"training_by_loss.{loss}"
        if loss not in losses:
            yield (
                f"{key}: this is not one of the search's losses ({', '.join(losses)}){suggestion(loss, losses)}; add "
                "it to losses or remove it."
            )
            continue
        for name in SHARED:
            if name in own:
                yield (
                    f"{key}.{name}: it must be the same for all losses of a search, and here it is {own[name]!r}; "
                    "remove it."
                )
        alone = {name: value for name, value in own.items() if name not in SHARED}
        for sentence in _over(training, alone).mistakes:
            _, where, what = re.split(r"^training([\w.]*)", sentence.replace("did you mean training.", "did you mean "))
            # A mistake may concern a setting of the section ``training`` that this loss inherits.
            others = {field.name for field in fields(TrainingConfig)} - own.keys()
            scope = " over training" if not where and others & set(re.findall(r"\w+", what)) else ""
            yield f"{key}{where}{scope}{what}"


# The metrics.


class MetricsSection(ConfigSection):
    """The metrics of each epoch's validation and of the sealed test.

    :mod:`trainables.data.store.view` draws the half of the training images in a gallery, with the split's seed. A
    user-defined training that declares metrics has these instead, by default all; :func:`validate_config` adds them.
    """

    validation: Metrics = ("recall_at_1", "map_at_r")
    """The metrics of each epoch on the validation classes. Example: [recall_at_1, map_at_r]."""
    gallery: Literal["validation", "training_half"] = "validation"
    """The images among which validation images are ranked: each other, or half of the training images as well."""
    test: Literal["all"] | Metrics = "all"
    """The metrics of the test, the import paths of your own among them. Example: [recall_at_1, map_at_r, nmi]."""


# The resources of a trial.


class ResourcesSection(ConfigSection):
    """The engine that runs the trials, the resources of one trial, and the limits on silent workers.

    A user-defined engine is a :class:`search.engines.base.Engine`; :func:`search.config.tables.engine_name` resolves
    ``auto``.
    """

    engine: str = AUTO
    """The program that runs the trials, or the import path of your own; `auto` is `local` on one machine without a GPU
    and `ray` elsewhere.
    """
    cpus_per_trial: float = Field(default=1, gt=0)
    """The CPU cores of a trial."""
    gpus_per_trial: float = Field(default=0, ge=0)
    """The GPUs of a trial: a part of one, which several trials share, or a whole number, over which each batch is
    split. Example: 0.25.
    """
    stack: int = Field(default=1, ge=1, le=64)
    """The number of trials that one worker trains together, in the resources of one."""
    silent_epochs: float = Field(default=10, ge=2, allow_inf_nan=False)
    """A worker that is silent for this many times its slowest epoch, and at least ten minutes, counts as dead."""
    first_epoch_minutes: float = Field(default=120, gt=0, allow_inf_nan=False)
    """The limit of silence before a worker's first epoch."""

    @field_validator("engine")
    @classmethod
    def _known_engine(cls, name: str) -> str:
        return known_engine(name)

    @field_validator("gpus_per_trial")
    @classmethod
    def _part_of_one_or_whole(cls, gpus_per_trial: float) -> float:
        if gpus_per_trial > 1 and not gpus_per_trial.is_integer():
            raise ValueError("must be a part of a GPU, such as 0.5, or a whole number of them")
        return gpus_per_trial

    def workers(self, trials: int) -> int:
        """Return the number of workers that train ``trials`` trials at once."""
        return -(-trials // self.stack)


# The stages: search, select, test and noise.


class SearchSection(ConfigSection):
    """The search of each loss: at most ``trials`` trials, within a budget of ``epochs``, ``hours`` or ``gpu_hours``.

    Hours are those of its trials, one after the other; GPU hours are as many times ``resources.gpus_per_trial``. With
    ``patience`` a loss ends after that many trials without an improvement by more than ``min_gain``, with
    ``patience_epochs`` after so many epochs of such trials.

    The trials of another search (``from``, here :attr:`origin`) count as its own. The selection ignores audited ones.
    """

    origin: Annotated[str, AfterValidator(plain_name)] | None = Field(default=None, alias="from")
    """The name of another search in the runs folder whose trials this one begins with. Example: birds."""
    trials: int = Field(default=16, ge=1)
    """The number of trials of each loss, the default among them. May be raised at any time."""
    epochs: int | None = Field(default=None, ge=1)
    """The budget of each loss in epochs, all its trials together; null: unlimited. Example: 200."""
    hours: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The budget of each loss in hours of its trials, one after the other; null: unlimited. Example: 12."""
    gpu_hours: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The budget of each loss in GPU hours: hours times `resources.gpus_per_trial`; null: unlimited. Example: 24."""
    patience: int | None = Field(default=None, ge=1)
    """The number of trials without an improvement by more than `min_gain` after which a loss ends; null: none. Example:
    8.
    """
    patience_epochs: int | None = Field(default=None, ge=1)
    """The number of epochs of trials without such an improvement after which a loss ends; null: none. Example: 60."""
    min_gain: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """The smallest improvement of the objective that `patience` and `patience_epochs` count."""
    sampler: Annotated[str, AfterValidator(partial(known_name, table=SAMPLERS))] = "tpe"
    """The method that proposes trials."""
    pruner: Annotated[str, AfterValidator(partial(known_name, table=PRUNERS))] = "asha"
    """The rule that ends bad trials early."""
    objective: Metric = "map_at_r"
    """The metric on the validation classes that ranks trials. Example: recall_at_1."""
    objectives: Objectives | None = None
    """Several metrics to optimise at once, a minus before those to minimise; the first one is the `objective`.
    `embed_ms` and `size_mb` are milliseconds per item and megabytes of the model. Example: [map_at_r, -embed_ms].
    """
    constraints: Constraints = Field(default_factory=dict)
    """What a chosen configuration must meet: bounds of metrics, `embed_ms` or `size_mb`. Example: {embed_ms: "< 5"}."""
    audit: int = Field(default=0, ge=0)
    """The number of pruned trials of each loss that are trained to their end, to measure the effect of pruning."""
    seed: int = 0
    """The seed of all trials and proposals."""
    max_concurrent: int | None = Field(default=None, ge=1)
    """The maximum of trials at once; null: as many as the resources allow. Example: 4."""
    storage: Address | None = None
    """The database of the studies; null: a file in the search's folder. Example:
    "postgresql+psycopg://user:${DATABASE_PASSWORD}@host/optuna".
    """

    @model_validator(mode="after")
    def _sampler_fits(self) -> "SearchSection":
        sampler = SAMPLERS[self.sampler]
        if sampler.without_pruning and self.pruner != "none":
            raise Mistakes(
                f"sampler {self.sampler} {sampler.without_pruning}; set pruner to none (it is {self.pruner}) or "
                "sampler to tpe."
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _first_objective(cls, content: Any) -> Any:
        """Set the objective, if the file leaves it out, to the first of the objectives."""
        objectives = content.get("objectives") if isinstance(content, Mapping) else None
        if not isinstance(objectives, list) or not objectives:
            return content
        if (first := str(objectives[0])).startswith("-") or first in COSTS:
            raise Mistakes(
                "the first of objectives ranks the epochs of a training, so it is a metric that is maximised, and it "
                f"is {first}; put such a metric first."
            )
        # What a validator returns is no longer JSON, where pydantic takes a list for a tuple.
        return {"objective": objectives[0], **content, "objectives": tuple(objectives)}

    @model_validator(mode="after")
    def _what_is_compared(self) -> "SearchSection":
        raise_if_any([*self._mistakes_in_goal()])
        return self

    def _mistakes_in_goal(self) -> Iterator[str]:
        first, *others = self.objectives or (self.objective,)
        if self.objectives and not others:
            yield f"objectives has one metric alone, {first}; set objective to it instead."
        if first != self.objective:
            yield f"objective is {self.objective}, and the first of objectives {first}; leave objective out."
        metrics = [entry.removeprefix("-") for entry in (first, *others)]
        if repeated := sorted({name for name in metrics if metrics.count(name) > 1}):
            yield f"objectives: {', '.join(repeated)} is given more than once; keep one of each."
        if others and self.pruner != "none":
            yield f"pruner {self.pruner} compares trials by one metric, and there are objectives; set pruner to none."
        if (others or self.constraints) and SAMPLERS[self.sampler].one_metric:
            yield (
                f"sampler {self.sampler} compares trials by one metric, and there are "
                f"{'objectives' if others else 'constraints'}; set sampler to tpe, gp, random, qmc or grid."
            )

    @model_validator(mode="after")
    def _gain_of_patience(self) -> "SearchSection":
        if self.min_gain and self.patience is None and self.patience_epochs is None:
            raise Mistakes(
                f"min_gain is {self.min_gain:g} and patience null, which it belongs to, as is patience_epochs; set one "
                "of them, or leave it out."
            )
        return self


class SelectionSection(ConfigSection):
    """The confirmation of a loss's best configurations. See :mod:`search.selection.choice`."""

    finalists: int = Field(default=3, ge=1)
    """The number of configurations of each loss that are trained again, with fresh seeds."""
    seeds: int = Field(default=2, ge=1)
    """The number of fresh seeds of a finalist."""
    rule: Rule = "halving"
    """The allotment of the seeds: `halving` gives the better ones more of them, `mean` all the same."""
    splits: int = Field(default=1, ge=1, le=MOST_SPLITS)
    """The number of splits of the training classes on which finalists validate in turn, beginning with the search's
    own.
    """
    from_front: str = IDEAL
    """With `search.objectives`, which configuration of the Pareto front is chosen: `ideal`, the one nearest to the best
    values of all objectives, or the best one in an objective. Example: map_at_r.
    """

    @model_validator(mode="after")
    def _a_seed_for_each_split(self) -> "SelectionSection":
        if self.splits > self.seeds:
            raise Mistakes(
                f"splits is {self.splits} and seeds {self.seeds}; the trainings of a finalist validate on the splits "
                f"in turn, so set seeds to at least {self.splits}, or splits to {self.seeds} or less."
            )
        return self


TrainOn = Literal["train", "all"]
"""The classes that train: those that do not validate, or all training classes."""


class FinalSection(ConfigSection):
    """The trainings of the chosen configurations before the test."""

    seeds: int = Field(default=3, ge=1)
    """The number of final trainings of each configuration, whose models are tested."""
    train_on: TrainOn = "train"
    """The classes of the final trainings: those that do not validate, or `all` training classes, for the median of the
    best epochs.
    """


class NoiseSection(ConfigSection):
    """The noise stage: one configuration with ``seeds`` seeds, and with the first seed on ``splits`` other splits."""

    loss: str | None = None
    """The loss that is measured; null: the first one. Example: mpa."""
    configuration: Literal["default"] | dict[str, Any] = "default"
    """The configuration that is measured: `default`, or the values that differ from it. Example: {margin: 0.2}."""
    seeds: int = Field(default=5, ge=2)
    """The number of seeds."""
    splits: int = Field(default=0, ge=0, le=MOST_SPLITS)
    """The number of further splits on which the first seed is trained."""


# Storage of models and records.


class CheckpointsSection(ConfigSection):
    """The storage of the trials' models, and the limit in GB of the search trials' best ones."""

    storage_path: Annotated[str, Field(min_length=1)] | None = None
    """The folder of the trials' models, a path or a URL of fsspec; null: the runs folder. Example: s3://bucket/holdout.
    """
    max_gb: float | None = Field(default=None, gt=0)
    """The limit in GB of the search trials' models, the worst of which are deleted. Example: 10."""

    @field_validator("storage_path")
    @classmethod
    def _well_formed(cls, storage_path: str | None) -> str | None:
        if storage_path is None:
            return None
        scheme, separator, rest = storage_path.partition("://")
        if not separator and not storage_path.startswith("/"):
            raise ValueError("must be an absolute path, or a URL such as s3://bucket/folder")
        if "@" in rest.partition("/")[0]:
            raise Mistakes("it names a user; leave that out, its library finds user and password (see CLUSTER.md).")
        without_a_password(storage_path)
        if separator and scheme not in available_protocols():
            raise ValueError(f"fsspec has no {scheme}://; use s3://, gs://, abfs://, sftp:// or another of its schemes")
        return storage_path


class TrackingSection(ConfigSection):
    """The MLflow server and experiment, and notifications."""

    uri: Address | None = None
    """The MLflow server or database; null: `<runs>/mlflow.db`. Example: http://127.0.0.1:5000."""
    experiment: Annotated[str, Field(min_length=1)] | None = None
    """The experiment in MLflow; null: the search's name. Example: birds."""
    register_models: bool = Field(default=False, alias="register")
    """True registers the chosen models in MLflow, under the search's name."""
    webhook: str | None = None
    """The variable with an address to which one line of JSON is posted when a stage ends or the search stops with a
    fault. Range: a reference. Example: "${WEBHOOK}".
    """

    @field_validator("webhook")
    @classmethod
    def _by_reference(cls, webhook: str | None) -> str | None:
        if webhook is not None and not is_reference(webhook):
            raise Mistakes(
                "it must be a reference such as ${WEBHOOK}: whoever knows the address of a webhook can post to it, so "
                "export the address in that variable."
            )
        return webhook


# The user's packages that ``holdout submit`` copies to a cluster.

OWN_PACKAGES = ("holdout", "search", "spaces", "trainables")
"""This project's packages, which are always copied."""


def _package(name: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        raise Mistakes(f"{name!r} is not a package's name; give it as Python imports it, such as mylab.")
    top = name.partition(".")[0]
    if top != name:
        raise Mistakes(f"{name} is a part of the package {top}; ship that.")
    if name in OWN_PACKAGES:
        raise Mistakes(f"{name} is one of Holdout's packages, which are always copied; rename yours.")
    return name


Ship = tuple[Annotated[str, AfterValidator(_package)], ...]
