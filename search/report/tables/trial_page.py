"""Everything that is known of one trial."""

from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial

from search.plan.stored import StoredSearch
from search.plan.trial_table import TrialRow, trial_row
from search.study.records import epochs_of
from trainables.metrics import metric_name
from trainables.training.attempts.trial_log import read_log

BLOCKS = " ▁▂▃▄▅▆▇█"
HEIGHT, WIDTH = 8, 72


@dataclass(frozen=True, kw_only=True)
class TrialPage:
    """One trial: its row, its objective after each epoch, the path or URL of its best model, and its log.

    ``curve`` draws ``values`` for a terminal, an epoch a column.
    """

    study: str
    objective: str
    row: TrialRow
    values: tuple[float, ...]
    curve: str
    checkpoint: str | None
    log: str


def trial_page(search: StoredSearch, study: str, number: int) -> TrialPage:
    """Trial ``number`` of ``study``, as in ``mpa`` or ``mpa@confirm``.

    Raises:
        Mistakes: the search has no such loss, stage or trial.
    """
    trial = search.trial_of(study, number)
    directory = search.trial_directory(study, number)
    objective = metric_name(search.config["search"]["objective"])
    values = _values(trial, objective)
    kept = [record["checkpoint"] for record in epochs_of(trial) if record["checkpoint"]]
    return TrialPage(
        study=f"{search.name}/{study}",
        objective=objective,
        row=trial_row(trial),
        values=tuple(values),
        curve=drawn(values, objective),
        checkpoint=f"{directory}/{kept[-1]}" if kept else None,
        log=read_log(directory),
    )


def _values(trial: FrozenTrial, objective: str) -> list[float]:
    """The validation after each epoch; none where no classes validate."""
    return [record["metrics"][objective] for record in epochs_of(trial) if objective in record["metrics"]]


def drawn(values: Sequence[float], name: str) -> str:
    """``values`` as columns of block characters, from their least to their greatest; empty without any."""
    if not values:
        return ""
    shown = [values[index * len(values) // min(len(values), WIDTH)] for index in range(min(len(values), WIDTH))]
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    eighths = [round((value - low) / span * (HEIGHT * 8 - 1)) + 1 for value in shown]
    rows = []
    for row in reversed(range(HEIGHT)):
        label = {HEIGHT - 1: f"{high:.4f}", 0: f"{low:.4f}"}.get(row, "")
        blocks = "".join(BLOCKS[min(8, max(0, eighth - 8 * row))] for eighth in eighths)
        rows.append(f"{label:>10} {blocks}")
    return "\n".join([f"{name} by epoch, 1 to {len(values)}", *rows])
