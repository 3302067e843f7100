"""The sections of the search file, in its order."""

import os
import re
from functools import cached_property
from typing import Annotated, Literal

from fsspec import available_protocols
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from search.config.names import known_metric
from search.config.parts import build_dataset
from search.config.tables import AUTO, ENGINES
from search.packages import PACKAGES
from search.secrets import without_a_password
from trainables.data import Dataset
from trainables.errors import InvalidInput
from trainables.rules import Bounds, OneOf


class ConfigSection(BaseModel):
    """Base of all sections: frozen, without type conversions, unknown keys refused.

    The docstring below a field describes its key, in :mod:`search.config.keys`' form.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Names = Annotated[tuple[str, ...], Field(min_length=1)]
Address = Annotated[str, Field(min_length=1), AfterValidator(without_a_password)]
"""An address whose password, if it has one, is a reference such as ``${DATABASE_PASSWORD}``."""
Metric = Annotated[str, AfterValidator(known_metric)]
Metrics = Annotated[tuple[Metric, ...], Field(min_length=1)]

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
    store_size: Annotated[int, Bounds(ge=8)] = 256
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


class SplitSection(ConfigSection):
    """The validation classes: a fixed part of the training classes, or with ``folds`` each part in turn."""

    ratio: Annotated[float, Bounds(gt=0, lt=1)] = 0.9
    """The share of the training classes that train; the others validate."""
    seed: int = 0
    """The seed that draws the validation classes."""
    folds: Annotated[int | None, Bounds(ge=2)] = None
    """The number of parts of a cross-validation over the training classes: a trial's value is the mean over its folds.
    Null: one fixed part validates. Example: 4.
    """
    merge: Annotated[int | None, Bounds(ge=2)] = None
    """The number of consecutive training classes that are learned as one. Example: 2."""
    label_noise: Annotated[float, Bounds(ge=0, lt=1)] = 0.0
    """The probability of a wrong label for each training image; validation and test keep the true ones. Example: 0.2.
    """
    allow_overlap: Annotated[int, Bounds(ge=0)] = 0
    """The number of test images that may be training images, too. May change when a search is resumed."""

    @model_validator(mode="after")
    def _one_protocol(self) -> "SplitSection":
        if self.folds is not None and self.ratio != SplitSection.model_fields["ratio"].default:
            raise InvalidInput(
                f"folds is {self.folds} and ratio {self.ratio}; each fold validates on its own part of the classes, "
                "so leave the ratio out, or folds null for one fixed part."
            )
        return self


# The metrics.


class MetricsSection(ConfigSection):
    """The metrics of each epoch's validation and of the sealed test.

    :mod:`trainables.data.store.view` draws the half of the training images in a gallery, with the split's seed.
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

    engine: Annotated[str, OneOf((AUTO, *ENGINES), own=True)] = AUTO
    """The program that runs the trials, or the import path of your own; `auto` is `local` on one machine without a GPU
    and `ray` elsewhere.
    """
    cpus_per_trial: Annotated[float, Bounds(gt=0)] = 1
    """The CPU cores of a trial."""
    gpus_per_trial: Annotated[float, Bounds(ge=0, le=1)] = 0
    """The GPU of a trial: 0 for none, a part of one, which several trials share, or 1; trials in parallel use further
    GPUs. Example: 0.25.
    """


# Storage of models and records.


class CheckpointsSection(ConfigSection):
    """The storage of the trials' models, and the limit in GB of the search trials' best ones."""

    storage_path: Annotated[str, Field(min_length=1)] | None = None
    """The folder of the trials' models, a path or a URL of fsspec; null: the runs folder. Example: s3://bucket/holdout.
    """
    max_gb: Annotated[float | None, Bounds(gt=0)] = None
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
            raise InvalidInput("it names a user; leave that out, its library finds user and password (see CLUSTER.md).")
        without_a_password(storage_path)
        if separator and scheme not in available_protocols():
            raise ValueError(f"fsspec has no {scheme}://; use s3://, gs://, abfs://, sftp:// or another of its schemes")
        return storage_path


class TrackingSection(ConfigSection):
    """The MLflow server and experiment."""

    uri: Address | None = None
    """The MLflow server or database; null: `<runs>/mlflow.db`. Example: http://127.0.0.1:5000."""
    experiment: Annotated[str, Field(min_length=1)] | None = None
    """The experiment in MLflow; null: the search's name. Example: birds."""


# The user's packages that ``holdout submit`` copies to a cluster.


def _package(name: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        raise InvalidInput(f"{name!r} is not a package's name; give it as Python imports it, such as mylab.")
    top = name.partition(".")[0]
    if top != name:
        raise InvalidInput(f"{name} is a part of the package {top}; ship that.")
    if name in PACKAGES:
        raise InvalidInput(f"{name} is one of Holdout's packages, which are always copied; rename yours.")
    return name


Ship = tuple[Annotated[str, AfterValidator(_package)], ...]
