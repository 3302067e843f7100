"""The campaign file, and the searches that follow from it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, field_validator, model_validator

from search.config.names import folder_name, known_metric, plain_name, unique
from search.config.recipes import of_its_losses, read_search
from search.config.search_config import SearchConfig, parse_config
from search.config.sections import ConfigSection, Names
from search.config.validation import Validation, key_paths, validate
from search.config.yaml_file import with_value
from search.stages import Role
from spaces.space import Value
from trainables.mistakes import Mistakes, raise_if_any

# The campaign file: a search file, what varies, and the table that comes out.

LOSS = "loss"
VALIDATION = "validation"
"""Beside the test metrics: the objective on the validation classes, confirmed."""

Labels = dict[str, dict[str, Any]]
"""For each label of an axis its settings, ``key.path: value`` as ``--set`` takes them."""


MOST_SEARCHES = 500
"""Each of them is checked before any begins."""

STAND_INS = {
    "name": "unnamed",
    "study": "unsaid",
    "base": {},
    "vary": {"axis": {"label": {}}},
    "table": {"rows": [LOSS]},
}
"""What is put for a required key that is missing or wrong while the rest of a file is looked at."""


def _check_label(axis: str, label: str, settings: Mapping[str, Any]) -> None:
    try:
        plain_name(label)
    except ValueError as error:
        raise ValueError(f"the label {label!r} of {axis} stands in the names of searches, and {error}") from error
    for path in settings:
        if not all(path.split(".")):
            raise ValueError(f"the label {label} of {axis} sets {path!r}, which is no key such as search.trials")
        if path.split(".")[0] == "name":
            raise ValueError(f"the label {label} of {axis} sets name: searches are called after the labels")


class TableSection(ConfigSection):
    """The shape of the table: ``rows`` are axes or ``loss``; what is left makes the columns, the metrics last."""

    rows: Names
    metrics: Names = ("recall_at_1",)
    roles: tuple[Role, ...] = Field(default=(Role.DEFAULT, Role.TUNED), min_length=1)

    @field_validator("rows")
    @classmethod
    def _once(cls, rows: tuple[str, ...]) -> tuple[str, ...]:
        unique(rows)
        return rows

    @field_validator("metrics")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name != VALIDATION:
                known_metric(name)
        return names


class Printed(ConfigSection):
    """Something that a paper prints of cells of the table; ``left_out`` says why some of it does not stand there.

    A cell is named by a loss and a label of each axis, with spaces between.
    """

    source: str
    cells: Mapping[str, Any]
    left_out: str | None = None

    @property
    def told(self) -> Iterator[str]:
        """What stands beside ours, and what does not."""
        if self.cells:
            yield f"in brackets: {self.source}"
        if self.left_out:
            yield f"not beside ours: {self.source}; {self.left_out}"


class PublishedSection(Printed):
    """Numbers as a paper prints them, in the unit of our tables (per cent; distances as they are).

    ``cells`` have one number a metric. ``role`` says whose numbers ours stand beside.
    """

    role: Role
    metrics: Names
    cells: dict[str, tuple[float, ...]]

    @model_validator(mode="after")
    def _whole(self) -> "PublishedSection":
        if wrong := [key for key, values in self.cells.items() if len(values) != len(self.metrics)]:
            raise ValueError(f"each cell needs {len(self.metrics)} numbers ({', '.join(self.metrics)}); see {wrong[0]}")
        return self


class PublishedChoicesSection(Printed):
    """Which hyperparameters a paper found best, by our names; those of the training begin with ``training.``."""

    cells: dict[str, dict[str, Value]]


class QuotedSection(ConfigSection):
    """Rows of a paper's table beside which no cell of ours stands, as printed; ``null`` where it prints nothing."""

    source: str
    metrics: Names
    rows: dict[str, tuple[float | None, ...]]

    @model_validator(mode="after")
    def _whole(self) -> "QuotedSection":
        if wrong := [key for key, values in self.rows.items() if len(values) != len(self.metrics)]:
            raise ValueError(f"each row needs {len(self.metrics)} numbers ({', '.join(self.metrics)}); see {wrong[0]}")
        return self


class CampaignConfig(ConfigSection):
    """A whole campaign file.

    ``base`` is a search file without a name, on top of the recipe of that name where one is given.
    """

    name: str
    study: str
    recipe: str | None = None
    base: dict[str, Any]
    vary: dict[str, Labels] = Field(min_length=1, max_length=2)
    table: TableSection
    published: tuple[PublishedSection, ...] = ()
    published_choices: tuple[PublishedChoicesSection, ...] = ()
    quoted: tuple[QuotedSection, ...] = ()

    def search_name(self, labels: Sequence[str]) -> str:
        """What the search at ``labels``, one an axis, is called."""
        return "-".join((self.name, *labels))

    @property
    def search_names(self) -> list[str]:
        """What all the searches are called."""
        return [self.search_name(labels) for labels in product(*self.vary.values())]

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        return folder_name(name)

    @field_validator("base")
    @classmethod
    def _nameless(cls, base: dict[str, Any]) -> dict[str, Any]:
        if "name" in base:
            raise ValueError("base has no name of its own: each search is called after the campaign and its labels")
        return base

    @field_validator("vary")
    @classmethod
    def _labelled(cls, vary: dict[str, Labels]) -> dict[str, Labels]:
        for axis, labels in vary.items():
            if axis == LOSS:
                raise ValueError("an axis cannot be called loss: a search's losses vary by themselves")
            if not labels:
                raise ValueError(f"the axis {axis} has no label")
            for label, settings in labels.items():
                _check_label(axis, label, settings)
        if (searches := prod(map(len, vary.values()))) > MOST_SEARCHES:
            raise ValueError(f"it makes {searches} searches, and a campaign has {MOST_SEARCHES} at most")
        return vary

    @model_validator(mode="after")
    def _known_rows(self) -> "CampaignConfig":
        known = (LOSS, *self.vary)
        if unknown := [row for row in self.table.rows if row not in known]:
            raise Mistakes(f"table.rows may name {', '.join(known)}; {', '.join(unknown)} is none of them.")
        return self


def validate_campaign(content: Mapping[str, Any]) -> Validation[CampaignConfig]:
    """What a campaign file with the keys and values ``content`` says, and what is wrong in it but for its searches.

    It always builds something: :data:`STAND_INS` are put for required keys.
    """
    of_searches = [f"base.{key}" for key in key_paths(SearchConfig)]
    return validate(CampaignConfig, content, keys=[*key_paths(CampaignConfig), *of_searches], stand_ins=STAND_INS)


def read_config(content: Mapping[str, Any]) -> CampaignConfig:
    """The campaign file with the keys and values ``content``.

    Raises:
        Mistakes: all that is wrong with it, its searches left aside.
    """
    return validate_campaign(content).result()


# Doing the same for every search of a campaign, and telling the mistakes of all of them at once.

Given = TypeVar("Given")
Made = TypeVar("Made")


def for_each(given: Mapping[str, Given], make: Callable[[Given], Made]) -> list[Made]:
    """``make`` of each of ``given``, which are named by the labels of their searches.

    Raises:
        Mistakes: those of all searches. What is wrong with every one of them is said once, else with the labels.
    """
    made: list[Made] = []
    at: dict[str, list[str]] = {}
    for labels, value in given.items():
        try:
            made.append(make(value))
        except Mistakes as mistakes:
            for sentence in mistakes.sentences:
                at.setdefault(sentence, []).append(labels)
    raise_if_any(
        [
            sentence if len(labels) == len(given) else f"{'; '.join(labels)}: {sentence}"
            for sentence, labels in at.items()
        ]
    )
    return made


# From a campaign file to its searches.

SHARED = ("resources", "stages")
"""The sections in which the searches of a campaign agree, since they are trained side by side."""
SEARCHES = ("recipe", "base", "vary")
"""The keys that say what the searches are."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One search of a campaign, at ``labels``, one an axis."""

    labels: tuple[str, ...]
    config: SearchConfig


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A campaign file and its searches."""

    config: CampaignConfig
    members: tuple[Member, ...]

    @property
    def name(self) -> str:
        """What the campaign's folder is called, and who opens the test classes."""
        return self.config.name


def parse_campaign(
    content: Mapping[str, Any], parse_search: Callable[[dict[str, Any]], SearchConfig] = parse_config
) -> Campaign:
    """The campaign with the keys and values ``content``, each of its searches as ``parse_search`` reads it.

    Raises:
        Mistakes: every mistake that can be seen in the file itself; those of a search with its labels. Where what the
            searches are is wrong, they are not looked at.
    """
    validation = validate_campaign(content)
    config, mistakes = validation.built, [*validation.mistakes]
    assert config is not None, "a campaign file of which nothing can be built"
    if any(validation.left_out.touched(key) for key in SEARCHES):
        raise Mistakes(mistakes)
    try:
        members = tuple(_members(config, parse_search))
    except Mistakes as error:
        raise Mistakes([*mistakes, *error.sentences]) from error
    raise_if_any(mistakes)
    campaign = Campaign(config=config, members=members)
    raise_if_any([*_clashes(campaign), *_untested(campaign), *_unknown_cells(campaign)])
    return campaign


def _members(config: CampaignConfig, parse_search: Callable[[dict[str, Any]], SearchConfig]) -> list[Member]:
    recipe = read_search(Path(config.recipe)) if config.recipe else {}
    labels_by_name = {" ".join(labels): labels for labels in product(*config.vary.values())}
    return for_each(
        labels_by_name, lambda labels: Member(labels=labels, config=parse_search(search_file(config, recipe, labels)))
    )


def search_file(config: CampaignConfig, recipe: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """The search at ``labels``: the recipe, the base on top, then the labels' settings.

    What the recipe says of losses that are left out goes with them. Where the files do not say otherwise, one MLflow
    experiment holds the whole campaign, and the test computes what the table shows.
    """
    content = merged(recipe, config.base)
    for axis, label in zip(config.vary.values(), labels, strict=True):
        for path, value in axis[label].items():
            content = with_value(content, path.split("."), value)
    content = of_its_losses(content, recipe)
    tested = [metric for metric in config.table.metrics if metric != VALIDATION]
    defaults = {"tracking": {"experiment": config.name}, "metrics": {"test": tested} if tested else {}}
    return {**merged(defaults, content), "name": config.search_name(labels)}


def merged(under: Any, over: Any) -> Any:
    """``over`` on top of ``under``: mappings are united key by key, anything else is replaced."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return {**under, **{key: merged(under.get(key), value) for key, value in over.items()}}


def _clashes(campaign: Campaign) -> list[str]:
    """What the searches cannot differ in, and what they have to."""
    configs = [member.config for member in campaign.members]
    sentences = [
        f"vary: {section} must be the same in all searches, which are trained side by side; set it in base."
        for section in SHARED
        if any(getattr(config, section) != getattr(configs[0], section) for config in configs)
    ]
    if len({config.search.max_concurrent for config in configs}) > 1:
        sentences.append("vary: search.max_concurrent must be the same in all searches; set it in base.")
    names = [config.name for config in configs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        sentences.append(f"vary: several searches would be called {', '.join(repeated)}; choose other labels.")
    return sentences


def _untested(campaign: Campaign) -> list[str]:
    """Metrics of the table that some search's test does not compute."""
    sentences = []
    for metric in campaign.config.table.metrics:
        tests = [member.config.test_metrics for member in campaign.members]
        if metric != VALIDATION and any(test != "all" and metric not in test for test in tests):
            sentences.append(f"table.metrics: metrics.test leaves out {metric}; add it there.")
    return sentences


def _unknown_cells(campaign: Campaign) -> list[str]:
    """Published numbers and choices that stand beside nothing."""
    cells = {" ".join((loss, *member.labels)) for member in campaign.members for loss in member.config.loss_names}
    known = {*campaign.config.table.metrics}
    sentences = []
    for position, published in enumerate(campaign.config.published):
        unknown = [f"the cell {key!r}" for key in published.cells if key not in cells]
        unknown += [f"the metric {name}" for name in published.metrics if name not in known]
        if published.role not in campaign.config.table.roles:
            unknown.append(f"the role {published.role}")
        if unknown:
            sentences.append(
                f"published.{position}: the table has not {', '.join(unknown)}; a cell is named by "
                f"{', '.join((LOSS, *campaign.config.vary))}, such as {min(cells)!r}."
            )
    for position, choices in enumerate(campaign.config.published_choices):
        if unknown := [repr(key) for key in choices.cells if key not in cells]:
            sentences.append(
                f"published_choices.{position}: the campaign has not the cell {', '.join(unknown)}; a cell is named by "
                f"{', '.join((LOSS, *campaign.config.vary))}, such as {min(cells)!r}."
            )
    return sentences
