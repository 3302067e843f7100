"""A study's trials as rows of a table."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from optuna.trial import FrozenTrial, TrialState

from search.study.records import record_keys
from spaces.value import Value


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial. ``epochs`` are those reported, ``replicate_of`` the first trial with the same parameters.

    ``state`` is Optuna's name of it, ``value`` the trial's value (of a pruned one, its last), ``outcome`` why it ended.
    """

    number: int
    state: str
    value: float | None
    params: Mapping[str, Value]
    seed: int | None
    epochs: int
    replicate_of: int | None
    outcome: str | None


def trial_row(trial: FrozenTrial) -> TrialRow:
    """The row of ``trial``."""
    attributes = trial.user_attrs
    reported = trial.intermediate_values
    return TrialRow(
        number=trial.number,
        state=trial.state.name,
        value=trial.value if trial.value is not None else reported[max(reported)] if reported else None,
        params=attributes.get("params", trial.params),
        seed=attributes.get("seed"),
        epochs=len(record_keys(trial)),
        replicate_of=attributes.get("replicate_of"),
        outcome=attributes.get("outcome"),
    )


def parameter_names(rows: Sequence[TrialRow]) -> list[str]:
    """Every parameter that some row has, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row.params))


def trial_rows(trials: Sequence[FrozenTrial]) -> list[TrialRow]:
    """The rows of ``trials``, those that only wait to begin left out."""
    return [trial_row(trial) for trial in trials if trial.state != TrialState.WAITING]


def trials_csv(tables: Mapping[str, Sequence[TrialRow]]) -> str:
    """Rows by study as CSV, a column a parameter."""
    names = parameter_names([row for rows in tables.values() for row in rows])
    text = io.StringIO()
    columns = [name for name in TrialRow.__dataclass_fields__ if name != "params"]
    writer = csv.DictWriter(text, ("study", *columns, *names), lineterminator="\n")
    writer.writeheader()
    for study, rows in tables.items():
        for row in rows:
            facts = {key: value for key, value in asdict(row).items() if key != "params"}
            writer.writerow({"study": study, **facts, **row.params})
    return text.getvalue()
