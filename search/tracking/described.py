"""What MLflow is told of a search, a campaign and their runs, in words that know nothing of their files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spaces.space import Value


@dataclass(frozen=True, kw_only=True)
class DescribedData:
    """The images that train, as MLflow's data set: ``root`` is their folder, None where they are computed.

    ``digest`` is that of the split, and ``classes`` counts those of each of its parts.
    """

    name: str
    root: str | None
    digest: str
    classes: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class DescribedSearch:
    """A search from its first trial on.

    ``settings`` are the entries of its file that stay as they are, by key such as ``training.lr``; MLflow changes no
    parameter. ``settings_of`` are the same as each loss has them. ``searched`` names the hyperparameters of each loss,
    and ``campaign`` the campaign that it belongs to.
    """

    name: str
    description: str
    objective: str
    settings: Mapping[str, Value]
    settings_of: Mapping[str, Mapping[str, Value]]
    searched: Mapping[str, Sequence[str]]
    data: DescribedData
    campaign: str | None = None


@dataclass(frozen=True, kw_only=True)
class SummaryRun:
    """What the run of a loss, a search or a campaign shows: ``texts`` are artifacts by name, ``files`` ones to copy."""

    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, Value] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[Path] = ()


@dataclass(frozen=True, kw_only=True)
class DescribedModel:
    """The chosen model of a loss, which lies in ``folder``, with what it is said to be worth.

    ``description`` is its card in Markdown, ``params`` its hyperparameters, and ``metrics`` are those of the test.
    """

    folder: Path
    description: str
    tags: Mapping[str, str]
    metrics: Mapping[str, float]
    params: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Registration:
    """The chosen models of a search as versions of one registered model ``name``.

    That of the loss ``best`` has an alias, which says whether it is ``distinguishable`` from the others.
    """

    name: str
    description: str
    best: str
    distinguishable: bool


@dataclass(frozen=True, kw_only=True)
class Registered:
    """The registered model ``name``: the version of each loss's model, and which loss's has the ``alias``."""

    name: str
    versions: Mapping[str, str]
    best: str
    alias: str
