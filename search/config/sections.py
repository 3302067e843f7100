"""The sections of the search file."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property
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

from search.config.engines import AUTO, known_engine
from search.config.names import known_metric, known_name, plain_name, unique
from search.config.parts import build_dataset
from search.config.validation import Validation, validate
from search.secrets import without_a_password
from search.stages import Rule
from search.study import PRUNERS, SAMPLERS
from trainables.data import Dataset
from trainables.losses import LOSSES, LossPart, loss_part
from trainables.mistakes import Mistakes, suggestion
from trainables.parts import is_own
from trainables.training.config import TrainingConfig

# What every section of the search file is made of.


class ConfigSection(BaseModel):
    """A part of the search file: frozen, exact types, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False, serialize_by_alias=True)


MOST_SPLITS = 100
"""Further splits are all made before a search begins."""

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Address = Annotated[str, Field(min_length=1), AfterValidator(without_a_password)]
"""An address whose password, if it has one, is a reference such as ``${DATABASE_PASSWORD}``."""


# The ``dataset`` section: which images.


class DatasetSection(ConfigSection):
    """The images. Further keys are options of the data set named.

    ``name`` is a row of ``DATASETS`` or the import path of your own, whose code is then run.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, ignored_types=(cached_property,))

    name: str
    root: str | None = None
    store_size: int = Field(default=256, ge=8)
    cache: str | None = None

    @field_validator("root", "cache")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        # The resolved file must mean the same from wherever it is resumed.
        return None if path is None else os.path.abspath(os.path.expanduser(path))

    @model_validator(mode="after")
    def _buildable(self) -> "DatasetSection":
        _ = self.source
        return self

    @cached_property
    def source(self) -> Dataset:
        """The data set itself."""
        options = dict(self.model_extra or {})
        if self.root is not None:
            options["root"] = self.root
        return build_dataset(self.name, options)


# The ``losses`` section: which losses are searched, the built-in ones by name and one's own by import path.

OWN_KEYS = ("name", "part")
RESERVED = ("training",)
"""What stands beside the losses' names in ``space``."""


def _loss(entry: Any) -> LossPart:
    """One entry: a built-in loss's name, an import path, or ``{name: circle, part: "mylab.losses:CircleLoss"}``."""
    if isinstance(entry, LossPart):
        return entry
    if isinstance(entry, Mapping):
        return _named(entry)
    if not isinstance(entry, str):
        raise Mistakes(f"{entry!r} is no loss; give a name, or the import path of your own.")
    if is_own(entry):
        return _own(loss_part(entry))
    if entry not in LOSSES:
        raise Mistakes(
            f"{entry or repr(entry)} is not known{suggestion(entry, LOSSES)}; there are {', '.join(LOSSES)}, and your "
            "own by their import paths, such as mylab.losses:CircleLoss."
        )
    return loss_part(entry)


def _named(entry: Mapping[str, Any]) -> LossPart:
    """A loss of one's own with a name for it. It is not imported here, so that its search can be read without it."""
    name, path = (entry.get(key) for key in OWN_KEYS)
    if set(entry) != set(OWN_KEYS) or not isinstance(name, str) or not is_own(path):
        raise Mistakes(
            "a loss of your own has the keys name and part, as in {name: circle, part: 'mylab.losses:CircleLoss'}; "
            f"it is {dict(entry)!r}."
        )
    return _own(LossPart(name=name, path=path))


def _own(loss: LossPart) -> LossPart:
    try:
        plain_name(loss.name)
    except ValueError:
        raise Mistakes(
            f"{loss.path} would be called {loss.name!r}, which cannot name a folder; give it another name, as in "
            f"{{name: mine, part: '{loss.path}'}}."
        ) from None
    if loss.name in LOSSES or loss.name in RESERVED:
        taken = "a built-in loss" if loss.name in LOSSES else "a section of space"
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


# The ``metrics`` section: what is computed, and when.

Metric = Annotated[str, AfterValidator(known_metric)]
Metrics = Annotated[tuple[Metric, ...], Field(min_length=1)]


Gallery = Literal["validation", "training_half"]


class MetricsSection(ConfigSection):
    """What each epoch's validation and what the sealed test computes.

    The images of the validation classes are ranked among each other, or with ``training_half`` among half of the
    training images too (:mod:`trainables.data.store.view`, with the split's seed).
    """

    validation: Metrics = ("recall_at_1", "map_at_r")
    gallery: Gallery = "validation"
    test: Literal["all"] | Metrics = "all"


# The ``noise`` section: how much of a result is chance.


class NoiseSection(ConfigSection):
    """What the noise stage trains: one configuration with several seeds, and on other class splits with the first.

    ``configuration`` is ``default``, the papers', or values that differ from it. ``loss=None`` is the first one.
    """

    loss: str | None = None
    configuration: Literal["default"] | dict[str, Any] = "default"
    seeds: int = Field(default=5, ge=2)
    splits: int = Field(default=0, ge=0, le=MOST_SPLITS)


# The ``resources`` section: what one worker occupies, how many trials it trains, how long it may say nothing.


class ResourcesSection(ConfigSection):
    """The engine that runs the trials, the resources of one trial, and the limits on silent workers.

    ``engine`` is ``ray``, ``local`` (worker processes of this machine), ``in_process`` (one trial at a time in the
    driver, for notebooks and tests), the import path of an :class:`search.engines.base.Engine`, or ``auto``
    (:func:`search.config.engines.engine_name`). It may change when a search is resumed.

    A part of a GPU (``gpus_per_trial: 0.25``) lets trials share one; with several GPUs each batch of a trial is split
    among them. With ``stack`` a worker trains that many trials together in the resources of one.

    A worker that is silent for ``silent_epochs`` times its slowest epoch, and at least ten minutes, is taken as dead
    and ended; before its first epoch the limit is ``first_epoch_minutes``.
    """

    engine: str = AUTO
    cpus_per_trial: float = Field(default=1, gt=0)
    gpus_per_trial: float = Field(default=0, ge=0)
    stack: int = Field(default=1, ge=1, le=64)
    silent_epochs: float = Field(default=10, ge=2, allow_inf_nan=False)
    first_epoch_minutes: float = Field(default=120, gt=0, allow_inf_nan=False)

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


# The ``search`` section: how hyperparameters are searched.


class SearchSection(ConfigSection):
    """How hyperparameters are searched: at most ``trials`` a loss, and no more than fit in its budget of ``epochs``.

    With ``from``, which is :attr:`origin` here, the search begins with the trials of another one in the same runs
    folder, and they count as its own. ``audit`` pruned trials of each loss are trained to their end afterwards, to see
    what pruning was worth; the choice knows nothing of them. ``prior`` is the share of the trials that are drawn around
    the papers' default and not by the sampler.
    """

    origin: str | None = Field(default=None, alias="from")
    trials: int = Field(default=16, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    sampler: str = "tpe"
    prior: float = Field(default=0, ge=0, le=1)
    pruner: str = "asha"
    objective: str = "map_at_r"
    audit: int = Field(default=0, ge=0)
    seed: int = 0
    max_concurrent: int | None = Field(default=None, ge=1)
    storage: Address | None = None

    @field_validator("origin")
    @classmethod
    def _plain_origin(cls, name: str | None) -> str | None:
        return None if name is None else plain_name(name)

    @field_validator("sampler")
    @classmethod
    def _known_sampler(cls, name: str) -> str:
        return known_name(name, SAMPLERS)

    @field_validator("pruner")
    @classmethod
    def _known_pruner(cls, name: str) -> str:
        return known_name(name, PRUNERS)

    @field_validator("objective")
    @classmethod
    def _known_metric(cls, name: str) -> str:
        return known_metric(name)

    @model_validator(mode="after")
    def _works_beside_the_pruner(self) -> "SearchSection":
        reason = SAMPLERS[self.sampler].without_pruning
        if reason and self.pruner != "none":
            raise Mistakes(
                f"sampler {self.sampler} {reason}; set pruner to none (it is {self.pruner}) or sampler to tpe."
            )
        return self

    @model_validator(mode="after")
    def _has_room_for_the_prior(self) -> "SearchSection":
        if self.prior and SAMPLERS[self.sampler].in_order:
            raise Mistakes(
                f"sampler {self.sampler} goes over steps one after the other, and no draws around the default can be "
                f"among them; set prior to 0 (it is {self.prior:g}) or sampler to tpe."
            )
        return self


# The ``selection`` and ``final`` sections: what is trained after the search.


class SelectionSection(ConfigSection):
    """How the best configuration of a loss is confirmed: ``seeds`` trainings a finalist, shared out by ``rule``.

    They validate in turn on ``splits`` splits of the training classes, of which the first is the search's own. See
    :mod:`search.selection.choice`.
    """

    finalists: int = Field(default=3, ge=1)
    seeds: int = Field(default=2, ge=1)
    rule: Rule = "halving"
    splits: int = Field(default=1, ge=1, le=MOST_SPLITS)

    @model_validator(mode="after")
    def _a_seed_a_split(self) -> "SelectionSection":
        if self.splits > self.seeds:
            raise Mistakes(
                f"splits is {self.splits} and seeds {self.seeds}; the trainings of a finalist validate on the splits "
                f"in turn, so set seeds to at least {self.splits}, or splits to {self.seeds} or less."
            )
        return self


class FinalSection(ConfigSection):
    """How the chosen configurations are trained before the test."""

    seeds: int = Field(default=3, ge=1)
    train_on: Literal["train", "all"] = "train"


# The ``ship`` key: packages of one's own that travel with a submitted search.

OURS = ("holdout", "search", "spaces", "trainables")


def _package(name: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        raise Mistakes(f"{name!r} is no package's name; give it as Python imports it, such as mylab.")
    top = name.partition(".")[0]
    if top != name:
        raise Mistakes(f"{name} is a part of the package {top}; ship that.")
    if name in OURS:
        raise Mistakes(f"{name} is a package of Holdout's own, which travels anyway; rename yours.")
    return name


Ship = tuple[Annotated[str, AfterValidator(_package)], ...]


# The ``split`` section: which training classes validate.


class SplitSection(ConfigSection):
    """Which training classes validate: a fixed part of them, or all of them in turn, in ``folds``.

    Every ``merge`` consecutive classes that train are learned as one.
    """

    ratio: float = Field(default=0.9, gt=0, lt=1)
    seed: int = 0
    folds: int | None = Field(default=None, ge=2)
    merge: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _one_protocol(self) -> "SplitSection":
        if self.folds is not None and self.ratio != SplitSection.model_fields["ratio"].default:
            raise Mistakes(
                f"folds is {self.folds} and ratio {self.ratio}; each fold validates on its own part of the classes, "
                "so leave the ratio out, or folds null for one fixed part."
            )
        return self


# The ``checkpoints`` and ``tracking`` sections: where models and records go.


class CheckpointsSection(ConfigSection):
    """Where trials keep their models, and how much the search trials' best ones may take.

    ``storage_path`` is a path, or a URL that fsspec knows, such as ``s3://bucket/holdout``; by default the runs folder.
    """

    storage_path: Annotated[str, Field(min_length=1)] | None = None
    max_gb: float | None = Field(default=None, gt=0)

    @field_validator("storage_path")
    @classmethod
    def _reachable(cls, storage_path: str | None) -> str | None:
        if storage_path is None:
            return None
        scheme, separator, rest = storage_path.partition("://")
        if not separator and not storage_path.startswith("/"):
            raise ValueError("must be a whole path, or a URL such as s3://bucket/folder")
        if "@" in rest.partition("/")[0]:
            raise Mistakes("it names a user; leave that out, its library finds user and password (see CLUSTER.md).")
        without_a_password(storage_path)
        if separator and scheme not in available_protocols():
            raise ValueError(f"fsspec knows no {scheme}://, but s3://, gs://, abfs://, sftp:// and others")
        return storage_path


class TrackingSection(ConfigSection):
    """The MLflow server and experiment; by default ``<runs>/mlflow.db`` and the search's name.

    With ``register`` the chosen models are registered there, under the search's name.
    """

    uri: Address | None = None
    experiment: Annotated[str, Field(min_length=1)] | None = None
    register_models: bool = Field(default=False, alias="register")


# The ``training_by_loss`` section: where a loss is trained otherwise than the ``training`` section says.

TrainingByLoss = dict[str, dict[str, Any]]
"""For each loss the settings that are its own."""

SHARED = ("epochs", "image_size", "resize_size", "resize_square", "augment")
"""The same for all losses of a search: rungs and budgets count in the epochs, and the images are stored once."""


class _Settings(ConfigSection):
    """A section that can be read and spoken of by itself."""

    training: TrainingConfig


def training_of_loss(training: TrainingConfig, own: Mapping[str, Any]) -> TrainingConfig:
    """``training`` with the settings ``own`` over it; the keys of a schedule are united.

    Raises:
        Mistakes: all that is wrong with ``own``.
    """
    return _over(training, own).result().training


def _over(training: TrainingConfig, own: Mapping[str, Any]) -> Validation[_Settings]:
    content = asdict(training)
    for name, value in own.items():
        under = content.get(name)
        content[name] = {**under, **value} if isinstance(under, dict) and isinstance(value, dict) else value
    return validate(_Settings, {"training": content})


def training_mistakes(by_loss: TrainingByLoss, training: TrainingConfig, losses: Sequence[str]) -> Iterator[str]:
    """What is wrong with the settings ``by_loss`` of a search for ``losses``."""
    for loss, own in by_loss.items():
        key = f"training_by_loss.{loss}"
        if loss not in losses:
            yield (
                f"{key}: this is none of the search's losses ({', '.join(losses)}){suggestion(loss, losses)}; add it "
                "to losses or remove it."
            )
            continue
        for name in SHARED:
            if name in own:
                yield f"{key}.{name}: it is the same for all losses of a search, and here {own[name]!r}; remove it."
        alone = {name: value for name, value in own.items() if name not in SHARED}
        for sentence in _over(training, alone).mistakes:
            _, where, what = re.split(r"^training([\w.]*)", sentence.replace("did you mean training.", "did you mean "))
            # What is said of a setting that is not its own is said of the training section too.
            others = {field.name for field in fields(TrainingConfig)} - own.keys()
            rests = " over training" if not where and others & set(re.findall(r"\w+", what)) else ""
            yield f"{key}{where}{rests}{what}"
