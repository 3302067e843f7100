"""From a campaign file to its searches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from search.campaigns.config import LOSS, VALIDATION, CampaignConfig, validate_campaign
from search.campaigns.each import for_each
from search.config.recipes import of_its_losses, read_search
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import with_value
from trainables.mistakes import Mistakes, raise_if_any

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
