"""From a search file to a plan: all checks of a new search, and what may change when one is resumed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.config.search_config import SearchConfig, differences, may_change, parse_stored, validate_config
from search.config.validation import Findings
from search.plan.checks.data import (
    check_data,
    check_further_splits,
    check_gallery,
    check_images_readable,
    check_sizes,
    split_of,
)
from search.plan.checks.parts import check_network, check_noise, check_parts, check_spaces, check_stack, spaces_of
from search.plan.checks.services import check_addresses, check_machine, check_runs_folder
from search.plan.plan import Plan
from search.plan.runs import RunFolder, existing_run, stored_split
from trainables.data.split import ClassSplit
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from search.plan.stored import StoredSearch


# All checks of a search, and the plan where none finds anything.


def make_plan(
    config: SearchConfig,
    runs: Path,
    *,
    goes_on: bool = False,
    findings: Findings | None = None,
    is_finished: Callable[[Plan], bool] = lambda plan: False,
) -> Plan:
    """The plan of a search.

    Args:
        config: the search file.
        runs: the runs folder; nothing in it is touched.
        goes_on: whether it began before. Storage and tracking server are not asked then, since its studies outlive an
            outage of MLflow, and its spaces are not tried again.
        findings: what is wrong before, which is raised with the rest.
        is_finished: whether nothing will be trained, asked where nothing is wrong: the network is then not tried.

    Raises:
        Mistakes: all that is wrong.
    """
    found = Findings() if findings is None else findings
    data = split_of(found, config)
    if data is not None:
        check_data(found, config, data)
    check_sizes(found, config)
    check_gallery(found, config)
    further_splits = check_further_splits(found, config)
    spaces = check_spaces(found, config, accepted=goes_on)
    check_noise(found, config, spaces)
    check_machine(found, config)
    check_parts(found, config)
    check_stack(found, config)
    if not goes_on:
        check_addresses(found, config)
        check_runs_folder(found, runs)
    if data is not None and found.sentences:  # else they are all decoded next
        check_images_readable(found, config, data)
    plan = None
    if data is not None and not found.sentences:
        folder = RunFolder(runs, config.name)
        plan = Plan(config=config, folder=folder, split=data.split, spaces=spaces, further_splits=further_splits)
    if plan is None or not is_finished(plan):
        check_network(found, config)
    found.raise_if_any()
    assert plan is not None
    return plan


# What is wrong with a search beyond its file's form: its data, its batches, its spaces, its machines, its addresses.
#
# Nothing is created here. All checks are made, and their sentences collected.

__all__ = ["make_plan", "spaces_of"]


# Whether a search can begin with the trials of the one that ``search.from`` names.

EQUAL = (
    "dataset",
    "split",
    "model",
    "training",
    "losses",
    "training_by_loss",
    "space",
    "search.objective",
    "metrics",
)
"""What a trial rests on, and so has to be the same in both searches."""

EXCEPT = ("dataset.cache",)


def check_origin(found: Findings, config: SearchConfig, runs: Path) -> None:
    """The search that ``config`` begins with is there, and its trials could be this search's own."""
    origin = config.search.origin
    if origin is None:
        return
    try:
        folder = existing_run(runs, origin)
        stored = parse_stored(folder.config)
    except Mistakes as error:
        found.add(f"search.from: {sentence}" for sentence in error.sentences)
        return
    from search.plan.stored import StoredSearch  # imports sqlalchemy

    found.add(_different(found, origin, stored, config))
    found.add(_without_trials(StoredSearch(folder), stored.loss_names))


def _different(found: Findings, origin: str, stored: SearchConfig, config: SearchConfig) -> Iterator[str]:
    for key, before, after in differences(stored.model_dump(mode="json"), config.model_dump(mode="json")):
        compared = any(f"{key}.".startswith(f"{section}.") for section in EQUAL) and key not in EXCEPT
        if compared and not found.left_out.touched(key):
            yield (
                f"{key}: the search begins with the trials of {origin} (search.from), where it is {before!r}, and here "
                f"it is {after!r}; make it the same, or remove search.from."
            )


def _without_trials(origin: "StoredSearch", losses: Sequence[str]) -> Iterator[str]:
    """Losses with nothing to copy, or whose default would not be trial 0."""
    for loss in losses:
        trials = origin.trials(loss)
        if not trials or not trials[0].state.is_finished():
            yield (
                f"search.from: trial 0 of {origin.name}/{loss}, the default, has not ended yet; `holdout run` the file "
                f"of {origin.name} first, or remove search.from."
            )


# The plan of a search that begins or goes on: what may change when it goes on, and what may not.


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
