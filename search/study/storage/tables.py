"""Optuna's tables, read in a few queries and written one transaction at a time."""

import functools
import json
import math
from collections import ChainMap, Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Delete, Select, Table, bindparam, delete, func, insert, select, update

from search.trials import EPOCH, Tally

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

# The tables of Optuna's `optuna.storages._rdb.models`, with the columns that are read and written here. Those are
# classes of SQLAlchemy's ORM, whose import takes a while; `tests/study/test_driver_storage.py` compares both.

_TABLES = sa.MetaData()
_INFINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf}
_KINDS = {**_INFINITE, "NAN": math.nan}
"""Numbers that are stored as their kind and no value; the others are FINITE."""


def _table(name: str, row_id: str, *columns: Column[Any], of: Table | None = None) -> Table:
    """Return a table; a row is part of a row of the table ``of``."""
    owners = [] if of is None else [Column(key.name, sa.Integer, sa.ForeignKey(key)) for key in of.primary_key]
    return Table(name, _TABLES, Column(row_id, sa.Integer, primary_key=True), *owners, *columns)


def _attributes(of: Table, name: str) -> Table:
    return _table(f"{name}s", f"{name}_id", Column("key", sa.String), Column("value_json", sa.Text), of=of)


STUDIES = _table("studies", "study_id", Column("study_name", sa.String))
STUDY_USER_ATTRIBUTES = _attributes(STUDIES, "study_user_attribute")
STUDY_SYSTEM_ATTRIBUTES = _attributes(STUDIES, "study_system_attribute")
TRIALS = _table(
    "trials",
    "trial_id",
    Column("number", sa.Integer),
    Column("state", sa.Enum("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING", name="trialstate")),
    Column("datetime_start", sa.DateTime),
    Column("datetime_complete", sa.DateTime),
    of=STUDIES,
)
PARAMS = _table(
    "trial_params",
    "param_id",
    Column("param_name", sa.String),
    Column("param_value", sa.Float),
    Column("distribution_json", sa.Text),
    of=TRIALS,
)
VALUES = _table(
    "trial_values",
    "trial_value_id",
    Column("objective", sa.Integer),
    Column("value", sa.Float),
    Column("value_type", sa.Enum("FINITE", *_INFINITE, name="trialvaluetype")),
    of=TRIALS,
)
INTERMEDIATE_VALUES = _table(
    "trial_intermediate_values",
    "trial_intermediate_value_id",
    Column("step", sa.Integer),
    Column("intermediate_value", sa.Float),
    Column("intermediate_value_type", sa.Enum("FINITE", *_KINDS, name="trialintermediatevaluetype")),
    of=TRIALS,
)
USER_ATTRIBUTES = _attributes(TRIALS, "trial_user_attribute")
SYSTEM_ATTRIBUTES = _attributes(TRIALS, "trial_system_attribute")

_KEYS = {
    PARAMS: "param_name",
    VALUES: "objective",
    INTERMEDIATE_VALUES: "step",
    USER_ATTRIBUTES: "key",
    SYSTEM_ATTRIBUTES: "key",
}
"""The tables with several rows per trial, and the column that identifies a row of a trial."""

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """A stored study without its trials."""

    row_id: int
    user_attrs: dict[str, Any]
    system_attrs: dict[str, Any]


def read_study(connection: Connection, name: str) -> StudyRow | None:
    """Return the study ``name``; None if it does not exist."""
    row_id = connection.execute(select(STUDIES.c.study_id).where(STUDIES.c.study_name == name)).scalar()
    if row_id is None:
        return None
    user, system = (
        {
            key: json.loads(text)
            for key, text in connection.execute(
                select(table.c.key, table.c.value_json).where(table.c.study_id == row_id)
            )
        }
        for table in (STUDY_USER_ATTRIBUTES, STUDY_SYSTEM_ATTRIBUTES)
    )
    return StudyRow(row_id=row_id, user_attrs=user, system_attrs=system)


def read_trials(connection: Connection, study: int) -> "list[FrozenTrial]":
    """Return the trials of the study with row ``study``, in the order of their numbers."""
    from optuna.trial import FrozenTrial, TrialState

    params, distributions = defaultdict[int, dict[str, Any]](dict), defaultdict[int, dict[str, Any]](dict)
    for trial, name, value, text in connection.execute(_of_study(PARAMS, study)):
        distributions[trial][name] = distribution = _distribution(text)
        params[trial][name] = distribution.to_external_repr(value)
    values = defaultdict[int, list[float]](list)
    for trial, _, value, kind in connection.execute(_of_study(VALUES, study)):
        values[trial].append(_as_float(value, kind))
    steps = defaultdict[int, dict[int, float]](dict)
    for trial, step, value, kind in connection.execute(_of_study(INTERMEDIATE_VALUES, study)):
        steps[trial][step] = _as_float(value, kind)
    user, system = defaultdict[int, dict[str, Any]](dict), defaultdict[int, dict[str, Any]](dict)
    for table, attributes in ((USER_ATTRIBUTES, user), (SYSTEM_ATTRIBUTES, system)):
        for trial, key, text in connection.execute(_of_study(table, study)):
            attributes[trial][key] = json.loads(text)
    return [
        FrozenTrial(
            number=row.number,
            state=TrialState[row.state],
            value=None,
            values=values.get(row.trial_id),
            datetime_start=_local(row.datetime_start),
            datetime_complete=_local(row.datetime_complete),
            params=params[row.trial_id],
            distributions=distributions[row.trial_id],
            user_attrs=user[row.trial_id],
            system_attrs=system[row.trial_id],
            intermediate_values=steps[row.trial_id],
            trial_id=row.trial_id,
        )
        for row in connection.execute(select(TRIALS).where(TRIALS.c.study_id == study).order_by(TRIALS.c.trial_id))
    ]


def read_reports(connection: Connection, study: int) -> list[tuple[int, int, float]]:
    """Return (number, step, value) for all intermediate values of the study with row ``study``, as reported."""
    columns = (INTERMEDIATE_VALUES.c.intermediate_value, INTERMEDIATE_VALUES.c.intermediate_value_type)
    rows = connection.execute(
        select(TRIALS.c.number, INTERMEDIATE_VALUES.c.step, *columns)
        .join_from(INTERMEDIATE_VALUES, TRIALS)
        .where(TRIALS.c.study_id == study)
        .order_by(INTERMEDIATE_VALUES.c.trial_intermediate_value_id)
    )
    return [(number, step, _as_float(value, kind)) for number, step, value, kind in rows]


def count_trials(connection: Connection, study: int) -> Tally:
    """Count the trials that :func:`read_trials` would return."""
    of_study = TRIALS.c.study_id == study
    states = select(TRIALS.c.state, func.count()).where(of_study).group_by(TRIALS.c.state)
    epochs = (
        select(TRIALS.c.state, func.count())
        .join_from(USER_ATTRIBUTES, TRIALS)
        .where(of_study, USER_ATTRIBUTES.c.key.startswith(EPOCH))
        .group_by(TRIALS.c.state)
    )
    values = (
        select(VALUES.c.value, VALUES.c.value_type)
        .join_from(VALUES, TRIALS)
        .where(of_study, TRIALS.c.state == "COMPLETE")
    )
    trained = Counter[str](dict(connection.execute(epochs).tuples().all()))
    found = [_as_float(value, kind) for value, kind in connection.execute(values)]
    return Tally(
        states=Counter(dict(connection.execute(states).tuples().all())),
        epochs=trained.total(),
        epochs_running=trained["RUNNING"],
        best=max(found, default=None),
    )


def _of_study(table: Table, study: int) -> Select[Any]:
    """Select a table's rows of one study as (trial, key, columns…), in the order they were written."""
    row_id, trial_id, *columns = table.c
    return select(trial_id, *columns).join(TRIALS).where(TRIALS.c.study_id == study).order_by(row_id)


def _as_float(value: float | None, kind: str) -> float:
    return value if kind == "FINITE" and value is not None else _KINDS[kind]


def _as_stored(value: float) -> tuple[float | None, str]:
    if math.isfinite(value):
        return value, "FINITE"
    return None, "NAN" if math.isnan(value) else "INF_POS" if value > 0 else "INF_NEG"


# Thousands of trials share a few distributions.


@functools.lru_cache(maxsize=4096)
def _distribution(text: str) -> "BaseDistribution":
    from optuna.distributions import json_to_distribution

    return json_to_distribution(text)


@functools.lru_cache(maxsize=4096)
def _distribution_text(distribution: "BaseDistribution") -> str:
    from optuna.distributions import distribution_to_json

    return distribution_to_json(distribution)


def _local(utc: datetime | None) -> datetime | None:
    """Convert UTC to local time: Optuna's tables hold naive UTC, its trials naive local time."""
    return None if utc is None else utc.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)


def _utc(local: datetime | None) -> datetime | None:
    return None if local is None else local.astimezone(UTC).replace(tzinfo=None)


def param_row(name: str, value: float, distribution: "BaseDistribution") -> tuple[Table, Row]:
    """Return the row of a parameter; ``value`` is in the distribution's internal representation."""
    return PARAMS, {
        "param_name": name,
        "param_value": value,
        "distribution_json": _distribution_text(distribution),
    }


def value_row(objective: int, value: float) -> tuple[Table, Row]:
    """Return the row of a finished trial's value."""
    stored, kind = _as_stored(value)
    return VALUES, {"objective": objective, "value": stored, "value_type": kind}


def intermediate_value_row(step: int, value: float) -> tuple[Table, Row]:
    """Return the row of an intermediate value."""
    stored, kind = _as_stored(value)
    return INTERMEDIATE_VALUES, {"step": step, "intermediate_value": stored, "intermediate_value_type": kind}


def attribute_row(table: Table, key: str, value: Any) -> tuple[Table, Row]:
    """Return the row of a user or system attribute."""
    return table, {"key": key, "value_json": json.dumps(value)}


def rows_of(trial: "FrozenTrial") -> Iterator[tuple[Table, Row]]:
    """Yield all rows of ``trial`` except its own."""
    for name, value in trial.params.items():
        distribution = trial.distributions[name]
        yield param_row(name, distribution.to_internal_repr(value), distribution)
    for objective, value in enumerate(trial.values or ()):
        yield value_row(objective, value)
    for step, value in trial.intermediate_values.items():
        yield intermediate_value_row(step, value)
    for key, value in trial.user_attrs.items():
        yield attribute_row(USER_ATTRIBUTES, key, value)
    for key, value in trial.system_attrs.items():
        yield attribute_row(SYSTEM_ATTRIBUTES, key, value)


@dataclass
class Changes:
    """The changes of one transaction.

    ``trials`` maps the ids in memory of new or changed trials to the row of their study and the trial. ``rows`` holds
    the other rows by table, and by trial and key: the last value for a key is written. ``tried`` is True after the
    first attempt to write.
    """

    trials: "dict[int, tuple[int, FrozenTrial]]" = field(default_factory=dict)
    rows: dict[Table, dict[tuple[int, Any], Row]] = field(default_factory=lambda: defaultdict(dict))
    tried: bool = False

    def put(self, trial: int, table: Table, row: Row) -> None:
        """Add a row of the trial with id ``trial`` in memory."""
        self.rows[table][trial, row[_KEYS[table]]] = row

    def write(self, connection: Connection, row_ids: Mapping[int, int]) -> dict[int, int]:
        """Write all changes; return the rows of new trials by their ids in memory.

        ``row_ids`` are those of the trials that are stored already. A retry replaces existing rows, since the first
        attempt may have been committed without a response.
        """
        created: dict[int, int] = {}
        for trial_id, (study, trial) in self.trials.items():
            row_id = row_ids.get(trial_id) or (self._found(connection, study, trial.number) if self.tried else None)
            row = {
                "state": trial.state.name,
                "datetime_start": _utc(trial.datetime_start),
                "datetime_complete": _utc(trial.datetime_complete),
            }
            if row_id is not None:
                connection.execute(update(TRIALS).where(TRIALS.c.trial_id == row_id).values(row))
            else:
                new = insert(TRIALS).values(study_id=study, number=trial.number, **row)
                row_id = connection.execute(new).inserted_primary_key[0]  # type: ignore[index]
            if trial_id not in row_ids:
                created[trial_id] = row_id
        trials = ChainMap(created, row_ids)  # type: ignore[arg-type]  # only the first one is written to
        for table, rows in self.rows.items():
            keyed = [(trials[trial], key, row) for (trial, key), row in rows.items()]
            connection.execute(_delete(table), [{"of_trial": trial, "of_key": key} for trial, key, _ in keyed])
            connection.execute(insert(table), [{"trial_id": trial, **row} for trial, _, row in keyed])
        self.tried = True
        return created

    @staticmethod
    def _found(connection: Connection, study: int, number: int) -> int | None:
        of_number = (TRIALS.c.study_id == study) & (TRIALS.c.number == number)
        found: int | None = connection.execute(select(TRIALS.c.trial_id).where(of_number)).scalar()
        return found


@functools.cache
def _delete(table: Table) -> Delete:
    key = table.c[_KEYS[table]]
    return delete(table).where(table.c.trial_id == bindparam("of_trial"), key == bindparam("of_key"))
