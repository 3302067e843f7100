"""The search file: its sections and their defaults."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

import yaml
from fsspec import available_protocols
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from search.config.dataset import build_dataset
from search.config.secrets import holds_password, without_password
from search.config.validation_errors import build
from search.study.names import Stage
from search.study.pruners import PRUNERS
from search.study.samplers.table import SAMPLERS
from trainables.data import Dataset
from trainables.losses import LOSSES
from trainables.metrics import METRICS, unknown_metrics
from trainables.mistakes import Mistakes, suggestion
from trainables.models import ModelConfig
from trainables.models.config import IMAGENET
from trainables.training_config import TrainingConfig

STAGES = (Stage.SEARCH, Stage.SELECT, Stage.TEST)

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Address = Annotated[str, Field(min_length=1)]


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"each may be named once, and {', '.join(repeated)} is named again")
    return names


def _known(names: tuple[str, ...], table: Mapping[str, Any]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in table]
    if unknown:
        hints = [hint for name in unknown if (hint := suggestion(name, table))]
        raise ValueError(f"{', '.join(unknown)} is not known; there are {', '.join(table)}{''.join(hints)}")
    return names


def known_metrics(names: tuple[str, ...]) -> tuple[str, ...]:
    """``names``, which have to be metrics."""
    if unknown := unknown_metrics(names):
        raise ValueError(f"{', '.join(unknown)} is not known; there are {', '.join(METRICS)}")
    return names


def plain_name(name: str) -> str:
    """``name``, which has to be fit for a folder."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(
            "a search's name names a folder: letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return name


class Section(BaseModel):
    """A part of the search file: frozen, exact types, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False)


class DatasetSection(Section):
    """The images. Further keys are options of the data set named."""

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


class SplitSection(Section):
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


class SearchSection(Section):
    """How hyperparameters are searched: at most ``trials`` a loss, and no more than fit in its budget of ``epochs``."""

    trials: int = Field(default=16, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    sampler: str = "tpe"
    pruner: str = "asha"
    objective: str = "map_at_r"
    seed: int = 0
    max_concurrent: int | None = Field(default=None, ge=1)
    storage: Address | None = None

    @field_validator("sampler")
    @classmethod
    def _known_sampler(cls, name: str) -> str:
        return _known((name,), SAMPLERS)[0]

    @field_validator("pruner")
    @classmethod
    def _known_pruner(cls, name: str) -> str:
        return _known((name,), PRUNERS)[0]

    @model_validator(mode="after")
    def _works_beside_the_pruner(self) -> "SearchSection":
        reason = SAMPLERS[self.sampler].without_pruning
        if reason and self.pruner != "none":
            raise Mistakes(
                f"sampler {self.sampler} {reason}; set pruner to none (it is {self.pruner}) or sampler to tpe."
            )
        return self

    @field_validator("objective")
    @classmethod
    def _known_metric(cls, name: str) -> str:
        return known_metrics((name,))[0]


class MetricsSection(Section):
    """What each epoch's validation and what the sealed test computes."""

    validation: Names = ("recall_at_1", "map_at_r")
    test: Literal["all"] | Names = "all"

    @field_validator("validation", "test")
    @classmethod
    def _known(cls, names: Any) -> Any:
        return names if names == "all" else known_metrics(names)


class ResourcesSection(Section):
    """What one trial occupies."""

    cpus_per_trial: float = Field(default=1, gt=0)
    gpus_per_trial: float = Field(default=0, ge=0)


class SelectionSection(Section):
    """How the best configuration of a loss is confirmed."""

    finalists: int = Field(default=3, ge=1)
    seeds: int = Field(default=2, ge=1)


class FinalSection(Section):
    """How the chosen configurations are trained before the test."""

    seeds: int = Field(default=3, ge=1)
    train_on: Literal["train", "all"] = "train"


class NoiseSection(Section):
    """What the noise stage trains: one configuration with several seeds, and on other class splits with the first.

    ``configuration`` is ``default``, the papers', or values that differ from it. ``loss=None`` is the first one.
    """

    loss: str | None = None
    configuration: Literal["default"] | dict[str, Any] = "default"
    seeds: int = Field(default=5, ge=2)
    splits: int = Field(default=0, ge=0)


class CheckpointsSection(Section):
    """Where trials keep their models, and how much the search trials' best ones may take.

    ``storage_path`` is a path, or a URL that fsspec knows, such as ``s3://bucket/holdout``; by default the runs folder.
    """

    storage_path: Address | None = None
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
        if separator and scheme not in available_protocols():
            raise ValueError(f"fsspec knows no {scheme}://, but s3://, gs://, abfs://, sftp:// and others")
        return storage_path


class TrackingSection(Section):
    """The MLflow server and experiment; by default ``<runs>/mlflow.db`` and the search's name."""

    uri: Address | None = None
    experiment: Address | None = None


class SearchConfig(Section):
    """A whole search file."""

    name: str
    dataset: DatasetSection
    split: SplitSection = SplitSection()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    losses: Names
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    search: SearchSection = SearchSection()
    metrics: MetricsSection = MetricsSection()
    resources: ResourcesSection = ResourcesSection()
    selection: SelectionSection = SelectionSection()
    final: FinalSection = FinalSection()
    noise: NoiseSection = NoiseSection()
    checkpoints: CheckpointsSection = CheckpointsSection()
    tracking: TrackingSection = TrackingSection()
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] = STAGES

    @field_validator("name")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        return plain_name(name)

    @field_validator("model")
    @classmethod
    def _absolute_weights(cls, model: ModelConfig) -> ModelConfig:
        if model.weights is None or model.weights == IMAGENET:
            return model
        return replace(model, weights=os.path.abspath(os.path.expanduser(model.weights)))  # a worker lives elsewhere

    @field_validator("losses")
    @classmethod
    def _known_losses(cls, losses: tuple[str, ...]) -> tuple[str, ...]:
        return _known(_unique(losses), LOSSES)

    @field_validator("stages")
    @classmethod
    def _in_order(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        rest = stages[1:] if stages[0] is Stage.NOISE else stages
        if rest != STAGES[: len(rest)]:
            in_order = [stage.value for stage in STAGES]
            raise ValueError(f"stages follow each other: {in_order}, or its beginning, {Stage.NOISE} before it")
        return stages

    @field_validator("search", "tracking")
    @classmethod
    def _no_password(cls, section: Any) -> Any:
        for key in ("storage", "uri"):
            address = getattr(section, key, None)
            if address and holds_password(address):
                raise Mistakes(
                    f"{key} holds a password ({without_password(address)}); write it as a reference such as "
                    "${DATABASE_PASSWORD} and export that."
                )
        return section

    @property
    def loss_names(self) -> tuple[str, ...]:
        """What the losses are called in tables, studies and folders."""
        return self.losses

    @property
    def test_metrics(self) -> tuple[str, ...] | str:
        """What the test computes: the metrics asked for, and the objective, whose way from the search ends there."""
        asked = self.metrics.test
        return asked if isinstance(asked, str) else tuple(dict.fromkeys((*asked, self.search.objective)))

    @property
    def noise_loss(self) -> str:
        """The loss whose noise is measured."""
        return self.noise.loss or self.loss_names[0]

    def to_yaml(self) -> str:
        """The resolved file: every default spelt out."""
        text: str = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        return text


def parse_config(content: Mapping[str, Any]) -> SearchConfig:
    """The search file with the keys and values ``content``.

    Raises:
        Mistakes: every mistake that can be seen in the file itself.
    """
    return build(SearchConfig, content, known=SearchConfig.model_fields, unknown="no such section")
