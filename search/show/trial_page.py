"""The page of one trial, as `holdout trials` prints it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search.records.records import Records
from search.records.status import TrialRow, trial_row
from search.results.rows import Shown
from search.text_table import sparkline
from search.trials import epochs_of, value_in
from trainables.metrics import metric_name, score_text
from trainables.training.attempt import read_log

if TYPE_CHECKING:
    import pandas

_WIDTH = 72
"""Most characters of a curve."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TrialPage(Shown):
    """A trial's row, its objective after each epoch, the path or URL of its best model, and its log."""

    study: str
    objective: str
    row: TrialRow
    values: tuple[float, ...]
    checkpoint: str | None
    log: str

    @property
    def curve(self) -> str:
        """The values as a line of block characters, scaled from their minimum to their maximum."""
        if not (values := self.values):
            return ""
        width = min(len(values), _WIDTH)
        drawn = [values[place * len(values) // width] for place in range(width)]
        low, high = (score_text(self.objective, end(values)) for end in (min, max))
        return f"{self.objective} by epoch, 1 to {len(values)}, from {low} to {high}:\n{sparkline(drawn, width)}"

    def to_frame(self) -> "pandas.DataFrame":
        import pandas

        return pandas.DataFrame({"epoch": range(1, len(self.values) + 1), self.objective: self.values})


def trial_page(search: Records, study: str, number: int) -> TrialPage:
    """Read trial ``number`` of ``study``, such as ``mpa`` or ``mpa@confirm``."""
    trial = search.trial_of(study, number)
    directory = search.trial_directory(study, number)
    objective = metric_name(search.content["search"]["objective"])
    records = epochs_of(trial)
    values = [value_in(record, objective) for record in records if objective in record["metrics"]]
    kept = [record["checkpoint"] for record in records if record["checkpoint"]]
    return TrialPage(
        study=f"{search.name}/{study}",
        objective=objective,
        row=trial_row(trial),
        values=tuple(values),
        checkpoint=f"{directory}/{kept[-1]}" if kept else None,
        log=read_log(directory),
    )
