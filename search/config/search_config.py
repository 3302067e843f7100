"""The search file as a whole, and the entries that may change while a search is running."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from search.config import sections
from search.config.keys import commented
from search.config.names import folder_name, known_trainable
from search.config.parts import Losses, TrainingByLoss, training_mistakes, training_of_loss
from search.config.validation import ConfigSection, Findings, fields_of, validate
from search.goal import Goal
from search.stages import Stage
from spaces.space import MODEL, Value
from trainables.common.errors import InvalidInput, Mistake, raise_if_any
from trainables.common.files import absolute, json_digest
from trainables.common.part_tables import is_own, plain_name
from trainables.common.process import contained
from trainables.data.dataset import ItemDataset
from trainables.losses import LossPart
from trainables.metrics import all_metrics, metric_name
from trainables.models import ModelConfig
from trainables.models.backbones import FEATURES, backbone, is_of_timm
from trainables.models.config import BACKBONE, IMAGENET
from trainables.training.spec import COSTS, EMBED_MS, SIZE_MB
from trainables.training.trainable import trainable_class
from trainables.training.training_config import TrainingConfig

STAND_INS = {"name": "unnamed", "dataset": {"name": "glyphs"}, "losses": ["proxy_anchor"]}
"""Values for required keys that are missing or wrong, so that the rest of a file can be checked."""


class SearchConfig(ConfigSection):
    """A whole search file. Reading it runs user-defined code that it names, such as ``mylab.losses:CircleLoss``."""

    model_config = ConfigDict(**{**ConfigSection.model_config, "ignored_types": (cached_property,)})

    name: Annotated[str, AfterValidator(folder_name)]
    """The name of the search: of its folder in the runs folder, and of its experiment in MLflow. Example: birds."""
    dataset: sections.DatasetSection
    """The images or embeddings."""
    split: sections.SplitSection = sections.SplitSection()
    """The validation classes: a part of the training classes. The test classes are the data set's own."""
    model: ModelConfig = Field(default=ModelConfig(), validate_default=True)
    """The network."""
    training: TrainingConfig = Field(default=TrainingConfig(), validate_default=True)
    """The training of one trial."""
    trainable: Annotated[str, AfterValidator(known_trainable)] | None = None
    """The import path of your own training, instead of `losses`. It uses only `epochs` of `training`, and nothing of
    `model` (see [Your own training](own_training.md)). Example: "examples.function_training:contrast".
    """
    losses: Losses
    """The losses to compare: names of `holdout losses`, or import paths of your own, as in `{name: circle, part:
    "mylab.losses:CircleLoss"}`. Example: [proxy_anchor, mpa].
    """
    training_by_loss: TrainingByLoss = Field(default_factory=dict)
    """Settings of `training` that differ for a loss. Example: {mpa: {proxy_lr: 1e-3}}."""
    space: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """The searched hyperparameters, by loss, and of `training` and `model` for all losses: a range, a list of choices
    or one value. By default those of `holdout losses`. Example: {mpa: {scale: {low: 8, high: 64, log: true}},
    training: {lr: [1e-4, 1e-3]}}.
    """
    search: sections.SearchSection = sections.SearchSection()
    """The trials of each loss. Only `trials` may change when a search is resumed."""
    metrics: sections.MetricsSection = sections.MetricsSection()
    """The metrics of validation and test."""
    resources: sections.ResourcesSection = sections.ResourcesSection()
    """The engine and the resources of a trial. May change when a search is resumed."""
    selection: sections.SelectionSection = sections.SelectionSection()
    """The confirmation of each loss's best configurations."""
    final: sections.FinalSection = sections.FinalSection()
    """The trainings of the chosen configurations before the test."""
    checkpoints: sections.CheckpointsSection = sections.CheckpointsSection()
    """The storage of the trials' models."""
    tracking: sections.TrackingSection = sections.TrackingSection()
    """MLflow. May change when a search is resumed."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] = tuple(Stage)
    """The stages to run; `[search]` alone opens no test classes. May change when a search is resumed. Example:
    [search].
    """
    ship: sections.Ship = ()
    """Packages of your own that `holdout submit` copies to a cluster. Example: [mylab]."""

    @field_validator("model", mode="before")
    @classmethod
    def _backbone_of_features(cls, model: Any, info: ValidationInfo) -> Any:
        """Set the backbone if the data are features and the file does not name one."""
        given = {} if isinstance(model, ModelConfig) else model
        if not isinstance(given, dict):
            return model
        # What a validator returns is no longer JSON, where pydantic takes a list for a tuple.
        given = {key: tuple(entry) if isinstance(entry, list) else entry for key, entry in given.items()}
        features = None
        if "backbone" not in given and (dataset := info.data.get("dataset")) is not None:
            with suppress(Exception), contained():  # whatever a user's code raises is reported with the classes
                features = dataset.source.features()
        return given if features is None else {"backbone": f"{FEATURES}:{features}", **given}

    @field_validator("model")
    @classmethod
    def _absolute_weights(cls, model: ModelConfig) -> ModelConfig:
        if model.weights in (None, IMAGENET):
            return model
        return replace(model, weights=absolute(str(model.weights)))  # for workers in another folder

    @field_validator("training")
    @classmethod
    def _crop_of_timm(cls, training: TrainingConfig, info: ValidationInfo) -> TrainingConfig:
        """Set the size before the crop, if the file leaves it null, to that with which timm evaluates the network."""
        model = info.data.get("model")
        if model is not None and is_of_timm(model.backbone) and training.resize_size is None:
            with suppress(InvalidInput):  # such as timm that is missing here; reported when the network is built
                if crop := backbone(model.backbone).crop:
                    return replace(training, resize_size=crop.resize_size(training.image_size))
        return training

    @field_validator("stages")
    @classmethod
    def _in_order(cls, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        if stages != tuple(Stage)[: len(stages)]:
            raise ValueError(f"must be {[stage.value for stage in Stage]}, or its beginning")
        return stages

    @model_validator(mode="after")
    def _sections_fit(self) -> "SearchConfig":
        raise_if_any(
            [*training_mistakes(self.training_by_loss, self.training, self.loss_names), *mistakes_across(self)]
        )
        return self

    @property
    def loss_names(self) -> tuple[str, ...]:
        """The names of the losses in tables, studies and folders."""
        return tuple(loss.name for loss in self.losses)

    def loss(self, name: str) -> LossPart:
        return next(loss for loss in self.losses if loss.name == name)

    def training_of(self, loss: str) -> TrainingConfig:
        """Return the training settings of the loss named ``loss``."""
        own = self.training_by_loss.get(loss)
        return training_of_loss(self.training, own).result().training if own else self.training

    def of_loss(self, loss: str) -> "SearchConfig":
        """Return the file for the loss named ``loss`` alone, with its settings in ``training``."""
        return self.model_copy(update={"training": self.training_of(loss), "training_by_loss": {}})

    @property
    def objective(self) -> str:
        """The name of the objective's value in all records."""
        return metric_name(self.search.objective)

    @cached_property
    def goal(self) -> Goal:
        """What ranks configurations: the objective and the constraints."""
        return Goal.of(self.search.model_dump())

    @property
    def measured(self) -> tuple[str, ...]:
        """The metrics and costs of the objective and the constraints, as the file names them."""
        return tuple(dict.fromkeys((self.search.objective, *self.search.constraints)))

    @property
    def test_metrics(self) -> tuple[str, ...]:
        """The metrics of the test: those of the file, of the objective and of the constraints."""
        measured = tuple(name for name in self.measured if name not in COSTS)
        if isinstance(self.metrics.test, str):
            return (*all_metrics(), *filter(is_own, measured))
        return tuple(dict.fromkeys((*self.metrics.test, *measured)))

    def to_yaml(self) -> str:
        """Return the resolved file, with all defaults and a comment on every key."""
        return commented(SearchConfig, self.model_dump(mode="json"))


def validate_config(content: Mapping[str, Any]) -> Findings[SearchConfig]:
    """Validate ``content`` as a search file, of which an object is always built (:data:`STAND_INS`).

    The ``losses`` of a trainable are its one row, so its name can later be read without its code.
    """
    path = content.get("trainable")
    if path is None:
        return validate(SearchConfig, content, stand_ins=STAND_INS)
    unknown = {"losses": [{"name": "unknown", "part": path if is_own(path) else "unknown:Trainable"}]}
    row: dict[str, Any] = unknown
    with suppress(InvalidInput, TypeError):  # reported with the key
        row = {"losses": [{"name": plain_name(trainable_class(path)), "part": path}]}
    return validate(SearchConfig, {**row, **content}, stand_ins={**STAND_INS, **unknown})


def parse_config(content: Mapping[str, Any], images: Path | None = None) -> SearchConfig:
    """Return the search file with the keys and values ``content``; raise with all mistakes of its form.

    Its data set is read in the folder ``images`` if that is given; the file keeps its own paths.
    """
    if images is None:
        return validate_config(content).result()
    own = paths_of_data(content)
    there = {key: str(images / Path(path).name if key == "file" else images) for key, path in own.items()}
    config = validate_config({**content, "dataset": {**content["dataset"], **there}}).result()
    dataset = config.dataset.model_copy(update={key: absolute(path) for key, path in own.items()})
    return config.model_copy(update={"dataset": dataset})  # whose source is that of ``images``


def paths_of_data(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the folder and the file of the data set in a search file, by key; empty if it has none."""
    of_data = content.get("dataset")
    return {key: of_data[key] for key in ("root", "file") if of_data.get(key)} if isinstance(of_data, Mapping) else {}


def parse_stored(content: Mapping[str, Any], path: Path, images: Path | None = None) -> SearchConfig:
    """Return the search file with the ``content`` that a search stored at ``path``; no missing key gets its default."""
    if missing := [key for key in SearchConfig.model_fields if key not in content]:
        raise InvalidInput(
            f"{path} is damaged, or another version wrote it (it has no {', '.join(missing)}); restore it from a copy."
        )
    return parse_config(content, images)


# Entries that may change when a search is resumed, and the digest of those that may not.

MAY_CHANGE = (
    "resources", "tracking", "stages", "ship", "search.trials", "split.allow_overlap", "final.vault",
    "final.vault_items",
)  # fmt: skip
"""Sections and keys that may change, besides losses and ranges, which :func:`search.records.plan.growth` extends."""


def may_change(key: str) -> bool:
    """Return True if the entry ``key``, such as ``search.trials``, may differ when the search is resumed."""
    return key in MAY_CHANGE or key.split(".")[0] in MAY_CHANGE


def settled(content: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return all entries of a resolved search file that may not change."""
    return {
        key: settled(value, f"{above}{key}.") if isinstance(value, dict) else value
        for key, value in content.items()
        if f"{above}{key}" not in MAY_CHANGE
    }


def settled_digest(content: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Return the SHA-256 of all entries of a resolved search file that may not change, ``without`` some sections."""
    return json_digest({key: value for key, value in settled(content).items() if key not in without})


def settled_entries(config: SearchConfig) -> dict[str, Value]:
    """Return all entries that may not change and are not null, by key such as ``training.lr``; lists as JSON."""
    return dict(_entries(settled(config.model_dump(mode="json"))))


def _entries(content: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Value]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _entries(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", json.dumps(value) if isinstance(value, list) else value


def differences(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each key, such as ``training.lr``, at which two files differ, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for inner in dict.fromkeys((*before, *after)):
            yield from differences(before.get(inner), after.get(inner), f"{key}.{inner}" if key else str(inner))
    elif before != after:
        yield key, before, after


def mistakes_across(config: SearchConfig) -> Iterator[Mistake]:
    """Yield the mistakes in a file whose sections are valid by themselves."""
    if config.trainable is not None:
        yield from _of_trainable(config, config.trainable)
        return
    if isinstance(config.dataset.source, ItemDataset):
        text = f"is {config.dataset.name}, whose items are neither images nor embeddings"
        fix = "name a training of your own for them in trainable"
        yield Mistake("dataset.name", text, fix, ("dataset.name", "trainable"))
    wishes = (config.space.get(MODEL), *(of_loss.get(MODEL) for of_loss in config.space.values()))
    freezes = [wish.get("freeze") for wish in wishes if isinstance(wish, Mapping)]
    frozen = config.model.is_frozen or any(entry == BACKBONE or BACKBONE in (entry or ()) for entry in freezes)
    if EMBED_MS in config.search.constraints and frozen:
        text = f": {EMBED_MS} is the time of the whole network, and the features of a frozen backbone are computed once"
        keys = (f"search.constraints.{EMBED_MS}", "model.freeze", "space")
        yield Mistake("search.constraints", text, f"leave model.freeze out, or use {SIZE_MB}", keys)


def changed_keys(name: str, section: Any, default: Any) -> list[str]:
    """Return the keys of the section ``name`` whose values differ from those of ``default``."""
    fields = fields_of(type(section))
    return [f"{name}.{key}" for key in fields if getattr(section, key) != getattr(default, key)]


def _of_trainable(config: SearchConfig, path: str) -> Iterator[Mistake]:
    """Yield the settings of a search with the user-defined training ``path`` that are for trainings with a loss."""
    if [loss.path for loss in config.losses] != [path]:
        text = f": a search trains losses or a trainable, and trainable is {path}"
        yield Mistake("losses", text, "leave losses out", ("losses", "trainable"))
        return
    features = config.dataset.source.features()
    network = ModelConfig() if features is None else ModelConfig(backbone=f"{FEATURES}:{features}")
    changed = [key for key in changed_keys("training", config.training, TrainingConfig()) if key != "training.epochs"]
    changed += changed_keys("model", config.model, network)
    changed += ["training_by_loss"] if config.training_by_loss else []
    changed += [f"space.{section}" for section in ("training", "model") if section in config.space]
    for key in changed:
        text = f": a setting of trainings with a loss, and trainable is {path}"
        yield Mistake(key, text, "remove it", (key, "trainable"))
