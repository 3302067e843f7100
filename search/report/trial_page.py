"""The page of one trial, as `holdout show` prints it."""

from collections.abc import Sequence
from dataclasses import dataclass

from search.plan.stored import StoredSearch, TrialRow, trial_row
from search.trials import epochs_of
from trainables.metrics import metric_name
from trainables.training.trial_log import read_log

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT, _WIDTH = 8, 72
"""Size of the curve in characters."""


@dataclass(frozen=True, kw_only=True)
class TrialPage:
    """A trial's row, its objective after each epoch, the path or URL of its best model, and its log.

    ``curve`` draws ``values`` as text, one column per epoch.
    """

    study: str
    objective: str
    row: TrialRow
    values: tuple[float, ...]
    curve: str
    checkpoint: str | None
    log: str


def trial_page(search: StoredSearch, study: str, number: int) -> TrialPage:
    """Read trial ``number`` of ``study``, such as ``mpa`` or ``mpa@confirm``.

    Raises:
        Mistakes: the search has no such loss, stage or trial.
    """
    trial = search.trial_of(study, number)
    directory = search.trial_directory(study, number)
    objective = metric_name(search.config["search"]["objective"])
    records = epochs_of(trial)
    values = [record["metrics"][objective] for record in records if objective in record["metrics"]]
    kept = [record["checkpoint"] for record in records if record["checkpoint"]]
    return TrialPage(
        study=f"{search.name}/{study}",
        objective=objective,
        row=trial_row(trial),
        values=tuple(values),
        curve=text_curve(values, objective),
        checkpoint=f"{directory}/{kept[-1]}" if kept else None,
        log=read_log(directory),
    )


def text_curve(values: Sequence[float], name: str) -> str:
    """Draw ``values`` as columns of block characters, scaled from their minimum to their maximum."""
    if not values:
        return ""
    width = min(len(values), _WIDTH)
    shown = [values[column * len(values) // width] for column in range(width)]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    eighths = [round((value - low) / span * (_HEIGHT * 8 - 1)) + 1 for value in shown]
    rows = []
    for row in reversed(range(_HEIGHT)):
        label = {_HEIGHT - 1: f"{high:.4f}", 0: f"{low:.4f}"}.get(row, "")
        blocks = "".join(_BLOCKS[min(8, max(0, eighth - 8 * row))] for eighth in eighths)
        rows.append(f"{label:>10} {blocks}")
    return "\n".join([f"{name} by epoch, 1 to {len(values)}", *rows])
