"""The sections of the search file."""

import os
import re
from functools import cached_property
from typing import Annotated, Literal

from fsspec import available_protocols
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from search.addresses import absolute_sqlite, without_a_password
from search.config.names import allowed_measure, known_metric
from search.config.parts import build_dataset
from search.config.validation import ConfigSection
from search.goal import bound_text
from search.packages import PACKAGES
from search.tables import AUTO, ENGINES, PRUNERS, SAMPLERS
from trainables.common.errors import InvalidInput, Mistake, raise_if_any
from trainables.common.files import absolute
from trainables.common.rules import Bounds, OneOf
from trainables.data import Dataset

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Address = Annotated[str, Field(min_length=1), AfterValidator(without_a_password)]
"""An address whose password, if it has one, is a reference such as ``${DATABASE_PASSWORD}``."""
AbsolutePath = Annotated[str, AfterValidator(absolute)]
"""A path that is made absolute, since a search may be resumed from another folder."""
Metric = Annotated[str, AfterValidator(known_metric)]
Metrics = Annotated[tuple[Metric, ...], Field(min_length=1)]


class DatasetSection(ConfigSection):
    """The data set. Keys beyond these five are its options. The code of a user-defined class is run."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, ignored_types=(cached_property,))

    name: str
    """A data set of `holdout datasets`, or the import path of your own. Other keys of the section are its options.
    Example: folder.
    """
    root: AbsolutePath | None = None
    """The folder of the images, with one sub-folder per class for `folder`. Example: /data/birds."""
    file: AbsolutePath | None = None
    """The file of the embeddings, for `features`: `.npz`, `.parquet` or `.safetensors`. Example: texts.npz."""
    store_size: Annotated[int, Bounds(ge=8)] = 256
    """The short side, in pixels, to which images are reduced once, when they are decoded."""
    cache: AbsolutePath | None = None
    """The folder of the decoded images; null for the user's cache. Example: /fast/holdout."""

    @model_validator(mode="after")
    def _buildable(self) -> "DatasetSection":
        _ = self.source
        return self

    @cached_property
    def source(self) -> Dataset:
        paths = {key: path for key, path in (("root", self.root), ("file", self.file)) if path is not None}
        return build_dataset(self.name, {**(self.model_extra or {}), **paths})


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
            text = f"is {self.folds} and ratio {self.ratio}; each fold validates on its own part of the classes"
            fix = "so leave the ratio out, or folds null for one fixed part"
            raise InvalidInput(Mistake("folds", f"{text}, {fix}", keys=("folds", "ratio")))
        return self


class MetricsSection(ConfigSection):
    """The metrics of each epoch's validation and of the sealed test."""

    validation: Metrics = ("recall_at_1", "map_at_r")
    """The metrics of each epoch on the validation classes. Example: [recall_at_1, map_at_r]."""
    gallery: Literal["validation", "training_half"] = "validation"
    """The images among which validation images are ranked: each other, or half of the training images as well."""
    test: Literal["all"] | Metrics = "all"
    """The metrics of the test, the import paths of your own among them. Example: [recall_at_1, map_at_r, nmi]."""


class ResourcesSection(ConfigSection):
    """The engine that runs the trials (:class:`search.engines.base.Engine`), and the resources of one trial."""

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


def _storage(address: str) -> str:
    """Return the address of checkpoints, with the user's folder for ``~``; raise if it cannot be used."""
    address = os.path.expanduser(address)
    scheme, separator, rest = address.partition("://")
    if not separator and not address.startswith("/"):
        raise ValueError("must be an absolute path, or a URL such as s3://bucket/folder")
    if "@" in rest.partition("/")[0]:
        raise InvalidInput("it names a user; leave that out, its library finds user and password (see CLUSTER.md).")
    without_a_password(address)
    if separator and scheme not in available_protocols():
        raise ValueError(f"fsspec has no {scheme}://; use s3://, gs://, abfs://, sftp:// or another of its schemes")
    return address


class CheckpointsSection(ConfigSection):
    """The storage of the trials' models, and the limit in GB of the search trials' best ones."""

    storage_path: Annotated[str, Field(min_length=1), AfterValidator(_storage)] | None = None
    """The folder of the trials' models, a path or a URL of fsspec; null: the runs folder. Example: s3://bucket/holdout.
    """
    max_gb: Annotated[float | None, Bounds(gt=0)] = None
    """The limit in GB of the search trials' models, the worst of which are deleted. Example: 10."""


class TrackingSection(ConfigSection):
    """The MLflow server and experiment."""

    uri: Annotated[Address, AfterValidator(absolute_sqlite)] | None = None
    """The MLflow server or database; null: `<runs>/mlflow.db`. Example: http://127.0.0.1:5000."""
    experiment: Annotated[str, Field(min_length=1)] | None = None
    """The experiment in MLflow; null: the search's name. Example: birds."""


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


Constraints = dict[Annotated[str, AfterValidator(allowed_measure)], Annotated[str, AfterValidator(bound_text)]]


class SearchSection(ConfigSection):
    """The search of each loss: at most ``trials`` trials, within a budget of ``epochs`` or ``hours``."""

    trials: Annotated[int, Bounds(ge=1)] = 16
    """The number of trials of each loss, the default among them. May be raised at any time."""
    epochs: Annotated[int | None, Bounds(ge=1)] = None
    """The budget of each loss in epochs, all its trials together; null: unlimited. Example: 200."""
    hours: Annotated[float | None, Bounds(gt=0)] = None
    """The budget of each loss in hours of its trials, one after the other; null: unlimited. Example: 12."""
    sampler: Annotated[str, OneOf(SAMPLERS)] = "tpe"
    """The method that proposes trials."""
    pruner: Annotated[str, OneOf(PRUNERS)] = "asha"
    """The rule that ends bad trials early."""
    objective: Metric = "map_at_r"
    """The metric on the validation classes that ranks trials. Example: recall_at_1."""
    constraints: Constraints = Field(default_factory=dict)
    """Bounds that a chosen configuration must meet, on metrics, `embed_ms` or `size_mb`: milliseconds per item and
    megabytes of the model. Example: {embed_ms: "< 5"}.
    """
    seed: int = 0
    """The seed of all trials and proposals."""
    max_concurrent: Annotated[int | None, Bounds(ge=1)] = None
    """The maximum of trials at once; null: as many as the resources allow. Example: 4."""

    @model_validator(mode="after")
    def _keys_fit(self) -> "SearchSection":
        sampler, found = SAMPLERS[self.sampler], []
        if sampler.without_pruning and self.pruner != "none":
            fix = f"set pruner to none (it is {self.pruner}) or sampler to tpe"
            text = f"is {self.sampler}, which {sampler.without_pruning}"
            found.append(Mistake("sampler", text, fix, ("sampler", "pruner")))
        if self.constraints and sampler.without_constraints:
            text = f"is {self.sampler}, which compares trials by one metric, and there are constraints"
            fix = "set sampler to tpe, gp, random, qmc or grid"
            found.append(Mistake("sampler", text, fix, ("sampler", "constraints")))
        raise_if_any(found)
        return self


class SelectionSection(ConfigSection):
    """The confirmation of the best configurations, one of which is chosen. See :mod:`search.records.selection`."""

    finalists: Annotated[int, Bounds(ge=1)] = 3
    """The number of configurations of each loss, besides the default, that are trained again with fresh seeds."""
    on: Literal["auto", "halves", "split"] = "auto"
    """The classes that confirm: with `halves` each half of all training classes validates a model of the other half,
    with `split` the validation classes of the search do so again; `auto` is `halves` if fewer than 20 classes validate.
    """
    better_by: Annotated[float, Bounds(ge=0)] = 1.0
    """The number of standard errors over classes by which a finalist must be better than the default to be chosen."""
    seeds: Annotated[int | None, Bounds(ge=1)] = None
    """The number of fresh seeds of a finalist; null: one on halves, where it trains two models, otherwise two. Example:
    2.
    """


class FinalSection(ConfigSection):
    """The trainings of the chosen configurations before the test."""

    seeds: Annotated[int, Bounds(ge=1)] = 3
    """The number of final trainings of each configuration, whose models are tested."""
    train_on: Literal["train", "all"] = "train"
    """The classes of the final trainings: those that do not validate, or `all` training classes, for the median of the
    best epochs.
    """
    test: Literal["always", "if_better"] = "always"
    """When the test is opened: `if_better` leaves it sealed if a network without training is recommended."""
    vault: str | None = None
    """The command of a vault, which holds the test classes; then all classes of the data set are training classes.
    Example: ssh keeper@host.
    """
    vault_items: str | None = None
    """The folder of the vault's test items without labels, of a vault that hands them out. Example: vault-items."""
    within: Annotated[float | None, Bounds(gt=0)] = None
    """The margin of equivalence, in points of the metric: two rows whose difference has an interval within it are the
    same. It is frozen with the choice; null: no rows are. Example: 1.0.
    """
