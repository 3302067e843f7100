"""Descriptions of searches, campaigns and models for MLflow, independent of their files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spaces.space import Value


@dataclass(frozen=True, kw_only=True)
class DescribedData:
    """The training images as an MLflow dataset.

    ``root`` is their folder, None if they are generated. ``digest`` is that of the split; ``classes`` are the numbers
    of classes in its parts.
    """

    name: str
    root: str | None
    digest: str
    classes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class DescribedSearch:
    """The properties of a search that are known at its start.

    ``settings`` are the entries of its file that cannot change, by key such as ``training.lr`` (MLflow's parameters are
    immutable), and ``settings_of`` the same for each loss. ``searched`` names the hyperparameters of each loss,
    ``campaign`` the campaign of the search. A server may hold others of the same names, from other runs folders, so
    runs are found by ``id`` and ``campaign_id``.
    """

    name: str
    id: str
    description: str
    objective: str
    settings: Mapping[str, Value]
    settings_of: Mapping[str, Mapping[str, Value]]
    searched: Mapping[str, Sequence[str]]
    data: DescribedData
    campaign: str | None = None
    campaign_id: str = ""


@dataclass(frozen=True, kw_only=True)
class SummaryRun:
    """The content of the run of a loss, a search or a campaign; ``texts`` and ``files`` are its artifacts."""

    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, Value] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True)
class DescribedModel:
    """The chosen model of a loss in ``folder``.

    ``description`` is its model card in Markdown, ``params`` its hyperparameters, ``metrics`` its test metrics.
    """

    folder: Path
    description: str
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    params: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A registered model ``name`` whose versions are the chosen models of a search.

    The model of the row ``best`` has the alias "champion".
    """

    name: str
    description: str
    best: str


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The registered model ``name``: the version of each row's model, and the row whose model is the champion."""

    name: str
    versions: Mapping[str, str]
    best: str
