"""Overtuning: how often what was chosen by validation ended below the default on the test classes.

Schneider et al. 2025 ("Overtuning in hyperparameter optimization", arXiv 2506.19540) find a choice worse than the
default or the first configuration in about 10 % of published searches.
"""

from collections.abc import Iterator
from pathlib import Path

from search.plan.runs import find_runs
from search.report.results import stored_summary
from search.report.rows import mean_of
from trainables.errors import InvalidInput, counted

KNOWN = "about 10 % in published searches, arXiv 2506.19540"


def _choices_and_defaults(runs: Path) -> Iterator[tuple[float, float]]:
    """Yield the objective on the test classes of each choice in the folder ``runs``, and that of its default.

    A choice that is the default is one of them. Searches that cannot be read are left out, and so are those whose test
    does not compute their objective.
    """
    for folder in find_runs(runs):
        try:
            summary = stored_summary(folder)
        except InvalidInput:
            continue
        for entry in summary.losses.values():
            chosen, default = ((row.test or {}).get(summary.objective) for row in (entry.tuned, entry.default))
            if (value := mean_of(chosen)) is not None and (other := mean_of(default)) is not None:
                yield value, other


def overtuning_sentence(runs: Path) -> str | None:
    """Return the sentence on the choices in the folder ``runs``; None if none was tested."""
    found = list(_choices_and_defaults(runs))
    if not found:
        return None
    below = sum(value < other for value, other in found)
    choices = counted(len(found), "tested choice")
    return f"Of {choices} in this runs folder, {below or 'none'} ended below the default on test classes ({KNOWN})."
