"""What a search learns from earlier ones in its runs folder: what they chose are its first trials.

This is ``search.learn_from``. A choice is made on validation classes, and no test value is read. A search that trained
or validated on classes of this search's test set is never learned from.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import CategoricalDistribution

from search.plan.plan import Plan
from search.plan.runs import RunFolder, campaign_of, find_runs, stored_config, stored_split
from search.report.results import Summary, stored_summary
from spaces.search_space import SearchSpace, nearest
from spaces.space import Params, Value
from trainables.files import reading
from trainables.mistakes import Mistakes, counted

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EarlierChoice:
    """What an earlier ``search`` chose for a loss, its trial ``number``; ``params`` are in the space of this search."""

    search: str
    number: int
    params: Params


def earlier_choices(plan: Plan) -> dict[str, list[EarlierChoice]]:
    """Return the first trials of each loss after its default: distinct ones, at most a quarter of its trials.

    With ``auto`` the searches with the same network come first, and of them the latest ones; otherwise they come in the
    order of the file.

    Raises:
        Mistakes: a search that the file names cannot be read.
    """
    found: dict[str, dict[Params, EarlierChoice]] = {loss: {} for loss in plan.config.loss_names}
    for summary in _earlier(plan):
        for loss, learned in found.items():
            choice = _choice_in(summary, loss, plan.spaces[loss])
            if choice and choice.params != plan.spaces[loss].default:
                learned.setdefault(choice.params, choice)
    return {loss: [*learned.values()][: plan.config.search.trials // 4] for loss, learned in found.items()}


def _earlier(plan: Plan) -> Iterator[Summary]:
    """Yield the results of the searches to learn from, without those that know classes of the test set."""
    wanted, runs = plan.config.search.learn_from, plan.folder.runs
    if wanted == "auto":
        folders = sorted(_chosen(plan), key=lambda folder: _distance(plan, folder))
    else:
        folders = [RunFolder(runs, name) for name in wanted] if wanted != "none" else []
    for folder in folders:
        if known := {*plan.split.test} & _classes(folder):
            logger.warning(
                "Nothing was learned from %s: %s of this search's test set have the names of classes that it trained "
                "or validated on.", folder.name, counted(len(known), "class", "classes"),
            )  # fmt: skip
        else:
            yield stored_summary(folder)


def _chosen(plan: Plan) -> Iterator[RunFolder]:
    """Yield the other searches that have chosen and can be read, without those of this search's campaign."""
    campaign = campaign_of(plan.folder.runs, plan.config.name)
    members = {plan.config.name} if campaign is None else {*campaign.searches()}
    for folder in find_runs(plan.folder.runs):
        if folder.name in members or not folder.selection.exists():
            continue
        try:
            stored_summary(folder), stored_split(folder), _network(folder)
        except Mistakes as mistakes:
            logger.warning("Nothing was learned from %s: %s", folder.name, mistakes)
        else:
            yield folder


def _distance(plan: Plan, folder: RunFolder) -> tuple[bool, float]:
    """Return a key that sorts searches with the same network first, and the latest ones of them."""
    return _network(folder) != plan.config.model.backbone, -folder.selection.stat().st_mtime


def _network(folder: RunFolder) -> str:
    content = stored_config(folder)
    with reading(folder.config):
        name: str = content["model"]["backbone"]
        return name


def _classes(folder: RunFolder) -> set[str]:
    split = stored_split(folder)
    return {name for division in split.divisions for part in division for name in part}


def _choice_in(summary: Summary, loss: str, space: SearchSpace) -> EarlierChoice | None:
    """Return what a search chose for ``loss``; None if it kept its default or has no such loss."""
    entry = summary.losses.get(loss)
    if entry is None or not entry.chosen or not entry.chosen.number or entry.chosen.params is None:
        return None
    return EarlierChoice(search=summary.name, number=entry.chosen.number, params=in_space(space, entry.chosen.params))


def in_space(space: SearchSpace, params: Mapping[str, Any]) -> Params:
    """Return the configuration of ``space`` that is nearest to ``params`` of another space.

    What only one of the spaces has, and choices that this one does not offer, are as in its default.
    """
    values: dict[str, Value] = {}
    for name, parameter in space.parameters.items():
        distribution, value = parameter.distribution, params.get(name)
        if isinstance(distribution, CategoricalDistribution):
            if value in distribution.choices:
                values[name] = value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            values[name] = nearest(distribution, value)
    return space.complete(values)
