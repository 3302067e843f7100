"""The campaign file, and the searches that follow from it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from search.config.names import folder_name, known_metric, plain_name, unique
from search.config.recipes import of_its_losses, read_search, recipes
from search.config.search_config import SearchConfig, parse_config
from search.config.sections import Names
from search.config.validation import ConfigSection, Findings, key_paths, validate
from search.config.yaml_file import with_value
from search.stages import Role
from trainables.common.errors import InvalidInput, Mistake, raise_if_any

# The campaign file: a search file, the settings that vary, and the table of the results.

LOSS = "loss"
"""The axis of the losses, which every campaign has."""

VALIDATION = "validation"
"""The column for the confirmed objective on the validation classes, next to the test metrics."""

Labels = dict[str, dict[str, Any]]
"""The settings of each label of an axis, as ``key.path: value``, like ``--set``.

A whole section (a key without dots) is merged into the search file, and ``recipe`` names one of the shipped recipes.
"""

RECIPE = "recipe"

MOST_SEARCHES = 500
"""Limit of searches, all of which are checked before any begins."""

STAND_INS = {
    "name": "unnamed",
    "study": "unsaid",
    "base": {},
    "vary": {"axis": {"label": {}}},
    "table": {"rows": [LOSS]},
}
"""Values for required keys that are missing or wrong, so that the rest of a file can be checked."""


def _check_label(axis: str, label: str, settings: Mapping[str, Any]) -> None:
    try:
        plain_name(label)
    except ValueError as error:
        raise ValueError(f"the label {label!r} of {axis} is part of the names of searches, and {error}") from error
    for path in settings:
        if not all(path.split(".")):
            raise ValueError(f"the label {label} of {axis} sets {path!r}, which is not a key such as search.trials")
        if path.split(".")[0] == "name":
            raise ValueError(f"the label {label} of {axis} sets name, but searches are named after their labels")
    if RECIPE in settings and settings[RECIPE] not in [*recipes()]:
        raise ValueError(
            f"the label {label} of {axis} has the recipe {settings[RECIPE]!r}, but the recipe of a label is one of "
            f"{', '.join(recipes())}"
        )


Column = Annotated[str, AfterValidator(lambda name: name if name == VALIDATION else known_metric(name))]


class TableSection(ConfigSection):
    """The shape of the table: ``rows`` are axes or ``loss``; the other axes make the columns, the metrics last."""

    rows: Annotated[Names, AfterValidator(unique)]
    metrics: Annotated[tuple[Column, ...], Field(min_length=1)] = ("recall_at_1",)
    roles: tuple[Literal[Role.DEFAULT, Role.TUNED], ...] = Field(default=(Role.DEFAULT, Role.TUNED), min_length=1)


class CampaignConfig(ConfigSection):
    """A whole campaign file.

    ``base`` is a search file without a name, on top of the ``recipe``, which that of a label replaces.
    """

    name: Annotated[str, AfterValidator(folder_name)]
    study: str
    recipe: str | None = None
    base: dict[str, Any]
    vary: dict[str, Labels] = Field(min_length=1, max_length=2)
    table: TableSection

    def search_name(self, labels: Sequence[str]) -> str:
        """Return the name of the search at ``labels``, one per axis."""
        return "-".join((self.name, *labels))

    @property
    def search_names(self) -> list[str]:
        return [self.search_name(labels) for labels in product(*self.vary.values())]

    @field_validator("base")
    @classmethod
    def _nameless(cls, base: dict[str, Any]) -> dict[str, Any]:
        if "name" in base:
            raise ValueError("base cannot have a name: each search is named after the campaign and its labels")
        return base

    @field_validator("vary")
    @classmethod
    def _labelled(cls, vary: dict[str, Labels]) -> dict[str, Labels]:
        for axis, labels in vary.items():
            if axis == LOSS:
                raise ValueError("an axis cannot be called loss: the losses are always an axis")
            if not labels:
                raise ValueError(f"the axis {axis} has no label")
            for label, settings in labels.items():
                _check_label(axis, label, settings)
        with_recipe = [axis for axis, labels in vary.items() if any(RECIPE in of for of in labels.values())]
        if len(with_recipe) > 1:
            raise ValueError(f"{' and '.join(with_recipe)} both name recipes; keep those of one axis")
        if (searches := prod(map(len, vary.values()))) > MOST_SEARCHES:
            raise ValueError(f"it makes {searches} searches, and a campaign may have at most {MOST_SEARCHES}")
        return vary

    @model_validator(mode="after")
    def _known_rows(self) -> "CampaignConfig":
        known = (LOSS, *self.vary)
        if unknown := [row for row in self.table.rows if row not in known]:
            text, fix = f"may name {', '.join(known)}", f"it names {', '.join(unknown)}; remove that"
            raise InvalidInput(Mistake("table.rows", text, fix, ("table.rows", "vary")))
        return self


def validate_campaign(content: Mapping[str, Any]) -> Findings[CampaignConfig]:
    """Validate ``content`` without its searches; :data:`STAND_INS` replace required keys that are missing or wrong."""
    keys = [*key_paths(CampaignConfig), *(f"base.{key}" for key in key_paths(SearchConfig))]
    return validate(CampaignConfig, content, keys=keys, stand_ins=STAND_INS)


def read_config(content: Mapping[str, Any]) -> CampaignConfig:
    """Return the campaign file with the keys and values ``content``."""
    return validate_campaign(content).result()


# From a campaign file to its searches, with the mistakes of all at once.

SHARED = ("resources", "stages", "search.max_concurrent")
"""Keys that must be the same in all searches of a campaign, which run at the same time."""


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A campaign file and its searches, one at each combination of labels."""

    config: CampaignConfig
    searches: tuple[SearchConfig, ...]

    @property
    def name(self) -> str:
        """The name of the campaign's folder, recorded with each opening of the test classes."""
        return self.config.name

    @property
    def labels(self) -> dict[str, dict[str, str]]:
        """The label of each search on each axis."""
        places = (dict(zip(self.config.vary, labels, strict=True)) for labels in product(*self.config.vary.values()))
        return dict(zip(self.config.search_names, places, strict=True))


def parse_campaign(
    content: Mapping[str, Any], parse_search: Callable[[dict[str, Any]], SearchConfig] = parse_config
) -> Campaign:
    """Return the campaign with the keys and values ``content``; ``parse_search`` reads each of its searches.

    Raises:
        InvalidInput: all mistakes in the file itself and, if its searches are well-defined, in these, with labels.
    """
    found = validate_campaign(content)
    config = found.built
    assert config is not None, "stand-ins make every campaign file buildable"
    if any(map(found.touched, ("recipe", "base", "vary"))):
        found.raise_if_any()
    searches = found.check(lambda: _searches(config, parse_search))
    found.raise_if_any()
    assert searches is not None, "without mistakes there are searches"
    campaign = Campaign(config=config, searches=tuple(searches))
    raise_if_any([*_contradictions(campaign)])
    return campaign


def _searches(config: CampaignConfig, parse_search: Callable[[dict[str, Any]], SearchConfig]) -> list[SearchConfig]:
    """Parse each search; raise the mistakes of all: once if common to all, else with the labels."""
    found, searches, all_labels = recipes_of(config), [], [*product(*config.vary.values())]
    at: dict[str, list[str]] = {}
    for labels in all_labels:
        try:
            searches.append(parse_search(search_file(config, found, labels)))
        except InvalidInput as mistakes:
            for sentence in mistakes.sentences:
                at.setdefault(sentence, []).append(" ".join(labels))
    raise_if_any(
        [text if len(where) == len(all_labels) else f"{'; '.join(where)}: {text}" for text, where in at.items()]
    )
    return searches


def recipes_of(config: CampaignConfig) -> dict[str, dict[str, Any]]:
    """Read the recipes that the campaign and its labels name."""
    of_labels = [settings.get(RECIPE) for labels in config.vary.values() for settings in labels.values()]
    return {name: read_search(Path(name)) for name in dict.fromkeys((config.recipe, *of_labels)) if name is not None}


def search_file(
    config: CampaignConfig, found: Mapping[str, Mapping[str, Any]], labels: Sequence[str]
) -> dict[str, Any]:
    """Return the search file at ``labels``: the recipe, updated with the base, then with the labels' settings.

    ``found`` has the :func:`recipes_of` the campaign, whose entries for removed losses are removed too. By default all
    searches share an MLflow experiment, and the test computes the metrics of the table.
    """
    chosen = [axis[label] for axis, label in zip(config.vary.values(), labels, strict=True)]
    name = next((settings[RECIPE] for settings in chosen if RECIPE in settings), config.recipe)
    recipe = found[name] if name is not None else {}
    content = merged(recipe, config.base)
    for settings in chosen:
        for path, value in settings.items():
            if path == RECIPE:
                continue
            content = with_value(content, path.split("."), value) if "." in path else merged(content, {path: value})
    content = of_its_losses(content, recipe)
    tested = [metric for metric in config.table.metrics if metric != VALIDATION]
    defaults = {"tracking": {"experiment": config.name}, "metrics": {"test": tested} if tested else {}}
    return {**merged(defaults, content), "name": config.search_name(labels)}


def merged(under: Any, over: Any) -> Any:
    """Return ``over`` on top of ``under``: mappings are merged key by key, other values are replaced."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    return {**under, **{key: merged(under.get(key), value) for key, value in over.items()}}


def _contradictions(campaign: Campaign) -> Iterator[str]:
    configs = campaign.searches
    for key in SHARED:
        if any(attrgetter(key)(config) != attrgetter(key)(configs[0]) for config in configs):
            yield f"vary: {key} must be the same in all searches, which are trained side by side; set it in base."
    names = [config.name for config in configs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        yield f"vary: several searches would be called {', '.join(repeated)}; choose other labels."
    for metric in campaign.config.table.metrics:
        tested = [config.test_metrics for config in configs if config.metrics.test != "all"]
        if metric != VALIDATION and any(metric not in metrics for metrics in tested):
            yield f"table.metrics: metrics.test leaves out {metric}; add it there."
