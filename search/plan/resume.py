"""The plan of a search that begins or goes on: what may change when it goes on, and what may not."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from search.config.changeable import may_change
from search.config.differences import differences
from search.config.search_config import SearchConfig, parse_stored, validate_config
from search.plan.checks import make_plan
from search.plan.checks.findings import Findings
from search.plan.checks.origin import check_origin
from search.plan.plan import Plan
from search.plan.runs import RunFolder, existing_run, stored_split
from trainables.data.split import ClassSplit
from trainables.mistakes import Mistakes


def read_plan(content: Mapping[str, Any], runs: Path) -> Plan:
    """The plan of the search file ``content``, for a search that begins or goes on below ``runs``.

    Raises:
        Mistakes: all that can be known to be wrong, in its form and beyond, or what differs from the stored search and
            may not. Where an entry is wrong, the rest is looked at without it.
    """
    validation = validate_config(content)
    assert validation.built is not None, "a search file of which nothing can be built"
    return _plan(validation.built, runs, Findings(validation.mistakes, validation.left_out))


def reopened(runs: Path, name: str) -> Plan:
    """The plan of the search ``name``, as it is stored.

    Raises:
        Mistakes: there is none, or it cannot go on here.
    """
    folder = existing_run(runs, name)
    return _with_stored_split(make_plan(parse_stored(folder.config), runs, goes_on=True))


def _plan(config: SearchConfig, runs: Path, found: Findings) -> Plan:
    if found.left_out.replaced("name"):  # whether it goes on is not known
        return make_plan(config, runs, findings=found)
    folder = RunFolder(runs, config.name)
    if folder.campaign.exists():
        found.add([f"name: {config.name} is a campaign in {runs}; call the search something else."])
    if not folder.config.exists():
        check_origin(found, config, runs)
        plan = make_plan(config, runs, findings=found)
        if origin := config.search.origin:
            refuse_other_classes(RunFolder(runs, origin), plan.split)
        return plan
    stored = parse_stored(folder.config)
    found.add(_forbidden(stored, config, found))
    goes_on, notices = _with_stored_trials(config, stored, found)
    found.add(_late_trials(stored, goes_on, folder))
    plan = make_plan(goes_on, runs, goes_on=True, findings=found, is_finished=_is_finished)
    return replace(_with_stored_split(plan), notices=notices)


def _is_finished(plan: Plan) -> bool:
    from search.plan.search import is_finished  # imports sqlalchemy

    return is_finished(plan)


def _with_stored_split(plan: Plan) -> Plan:
    """``plan`` with the split that was stored, which knows what the training images are."""
    if not plan.folder.split.exists():
        return plan
    refuse_other_classes(plan.folder, plan.split)
    return replace(plan, split=stored_split(plan.folder))


def refuse_other_classes(folder: RunFolder, split: ClassSplit) -> None:
    """The classes of a search may not change under it; what their images are only shows when they are decoded.

    Raises:
        Mistakes: they did.
    """
    stored = stored_split(folder)
    now = replace(split, images=stored.images)
    if stored.digest != now.digest:
        raise Mistakes(
            f"The classes in the data set are not those that {folder.name} began with (its split is "
            f"{stored.digest[:12]}, now it would be {now.digest[:12]}); put them back, or give the search a new name."
        )


def _forbidden(stored: SearchConfig, wanted: SearchConfig, found: Findings) -> Iterator[str]:
    """What differs from the stored search and may not."""
    for key, before, after in differences(stored.model_dump(mode="json"), wanted.model_dump(mode="json")):
        if may_change(key) or found.left_out.touched(key):
            continue
        yield (
            f"{key}: the search {wanted.name} began with {before!r} and the file now says {after!r}; put it back, or "
            "give the search a new name."
        )


def _with_stored_trials(
    wanted: SearchConfig, stored: SearchConfig, found: Findings
) -> tuple[SearchConfig, tuple[str, ...]]:
    """``wanted`` with the stored number of trials where it asks for fewer, and what to say of it.

    A search that was extended with ``--set`` goes on as it is with the file that it began with.
    """
    asked, trials = wanted.search.trials, stored.search.trials
    if asked >= trials and not found.left_out.touched("search.trials"):
        return wanted, ()
    kept = wanted.model_copy(update={"search": wanted.search.model_copy(update={"trials": trials})})
    return kept, (
        f"search.trials: the file says {asked}, and {wanted.name} was extended to {trials}; it goes on with {trials}.",
    )


def _late_trials(stored: SearchConfig, wanted: SearchConfig, folder: RunFolder) -> Iterator[str]:
    before, after = stored.search.trials, wanted.search.trials
    if after > before and folder.selection.exists():
        yield (
            f"search.trials: the configurations of {wanted.name} are chosen already, after {before} trials; more "
            "trials need a new name."
        )
