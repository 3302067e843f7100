"""Check of the search whose trials a new one begins with (``search.from``)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from search.config.search_config import SearchConfig, differences, parse_stored
from search.config.validation import Findings
from search.plan.runs import existing_run
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from search.plan.stored import StoredSearch

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
"""Entries on which a trial's value depends, and which must be the same in both searches."""

MAY_DIFFER = ("dataset.cache",)
"""Entries within these that change no value."""


def check_origin(found: Findings, config: SearchConfig, runs: Path) -> None:
    """Check that the search named by ``search.from`` exists, and that its trials could be this search's own."""
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
        compared = any(f"{key}.".startswith(f"{section}.") for section in EQUAL) and key not in MAY_DIFFER
        if compared and not found.left_out.touched(key):
            yield (
                f"{key}: the search begins with the trials of {origin} (search.from), where it is {before!r}, and here "
                f"it is {after!r}; make it the same, or remove search.from."
            )


def _without_trials(origin: "StoredSearch", losses: Sequence[str]) -> Iterator[str]:
    """Yield the losses without trials to copy, and those whose default is unfinished and so would not be trial 0."""
    for loss in losses:
        trials = origin.trials(loss)
        if not trials or not trials[0].state.is_finished():
            yield (
                f"search.from: trial 0 of {origin.name}/{loss}, the default, is not finished; `holdout run` the file "
                f"of {origin.name} first, or remove search.from."
            )
