"""The driver's storage, compared with plain Optuna on the same database."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings, strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from search.study.storage.driver import DriverStorage
from search.study.storage.open import close_storage, is_on_network, open_storage
from search.study.storage.read import read_storage, stored_attributes, stored_tally, stored_trials
from sqlalchemy import Enum, Table

from search.study.storage import tables
from search.trials import Tally
from trainables.errors import InvalidInput

numbers = count(1)

VALUES = st.floats(allow_nan=False) | st.sampled_from([float("inf"), -float("inf")])
STEPS = st.tuples(st.just("report"), st.integers(0, 5), st.floats())
ATTRIBUTES = st.tuples(
    st.just("attribute"), st.sampled_from(["a", "b"]), st.integers() | st.text() | st.lists(st.floats(0))
) | st.tuples(
    st.just("attribute"),
    st.sampled_from(["epoch:000001", "epoch:000002"]),
    st.fixed_dictionaries({"start": st.floats(0, 100), "end": st.floats(100, 200)}),
)
ENDS = st.tuples(st.just("tell"), st.sampled_from([*TrialState]), VALUES)


def told(trials: list[FrozenTrial]) -> list[Any]:
    """Return everything in a trial except its id, with times in seconds; as text, so that NaN equals itself."""
    return [
        repr(
            (
                trial.number, trial.state, trial.values, trial.params, trial.distributions,
                sorted(trial.intermediate_values.items()), sorted(trial.user_attrs.items()),
                sorted(trial.system_attrs.items()),
                trial.datetime_start and abs(time.time() - trial.datetime_start.timestamp()) < 60,
                trial.datetime_complete and abs(time.time() - trial.datetime_complete.timestamp()) < 60,
            )
        )
        for trial in trials
    ]  # fmt: skip


def carry_out(study: optuna.Study, action: tuple[Any, ...]) -> None:
    """Draw and carry out one action of a driver."""
    kind, *arguments = action
    running = [trial for trial in study.get_trials(deepcopy=False) if trial.state == TrialState.RUNNING]
    if kind == "enqueue":
        study.enqueue_trial({"x": arguments[0]}, user_attrs={"wanted": True})
    elif kind == "ask":
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        if trial.suggest_categorical("kind", ["a", "b", None]) == "a":
            trial.suggest_int("count", 1, 64, log=True)
    elif not running:
        return
    elif kind == "report":
        study._storage.set_trial_intermediate_value(running[-1]._trial_id, *arguments)
    elif kind == "attribute":
        study._storage.set_trial_user_attr(running[-1]._trial_id, *arguments)
    else:
        state, value = arguments
        if state.is_finished():
            study.tell(running[-1].number, value if state == TrialState.COMPLETE else None, state=state)


ACTIONS = st.tuples(st.just("enqueue"), st.floats(0, 1)) | st.tuples(st.just("ask")) | STEPS | ATTRIBUTES | ENDS


@pytest.fixture(scope="module")
def storages() -> Iterator[tuple[DriverStorage, RDBStorage]]:
    """Our storage and Optuna's, each with its own database."""
    ours, theirs = open_storage("sqlite://"), RDBStorage("sqlite://")
    yield ours, theirs
    for storage in (ours.database, theirs):
        storage.remove_session()
        storage.engine.dispose()


@settings(deadline=None, max_examples=40)
@given(actions=st.lists(ACTIONS, max_size=25))
def test_the_memory_the_database_and_optuna_say_the_same(
    storages: tuple[DriverStorage, RDBStorage], actions: list[tuple[Any, ...]]
) -> None:
    """The same actions in both storages leave the same trials for every reader."""
    ours, theirs = storages
    name = f"a/{next(numbers)}"
    studies = [
        optuna.create_study(
            study_name=name, storage=storage, direction="maximize", sampler=optuna.samplers.RandomSampler(seed=1)
        )
        for storage in storages
    ]
    for study in studies:
        study.set_user_attr("digest", {"of": [1, 2]})
        for action in actions:
            carry_out(study, action)
    memory, expected = (told(study.get_trials()) for study in studies)
    assert memory == expected
    assert told(stored_trials(ours.database.engine, name)) == expected  # our reader on our writer
    assert told(stored_trials(theirs.engine, name)) == expected  # our reader on Optuna's writer
    assert told(optuna.load_study(study_name=name, storage=ours.database).trials) == expected  # Optuna's on ours
    assert told(DriverStorage(ours.database).trials_of(name)) == expected  # the next driver
    assert stored_tally(theirs.engine, name) == Tally.of(studies[1].get_trials())
    assert stored_attributes(ours.database.engine, name) == {"digest": {"of": [1, 2]}}


@pytest.mark.parametrize("table", tables.STUDIES.metadata.sorted_tables, ids=str)
def test_the_declared_tables_are_those_of_optuna(table: Table) -> None:
    theirs = models.BaseModel.metadata.tables[table.name]
    assert set(theirs.c.keys()) == set(table.c.keys()), "a column that is neither read nor written"
    for column in table.c:
        other = theirs.c[column.name]
        assert (column.primary_key, column.type.python_type) == (other.primary_key, plain_type(other.type))
        assert {key.target_fullname for key in column.foreign_keys} == {
            key.target_fullname for key in other.foreign_keys
        }
        if isinstance(column.type, Enum):
            assert (column.type.name, column.type.enums) == (other.type.name, other.type.enums)


def plain_type(kind: Any) -> type:
    """Return the Python type of a column of Optuna's; names of an enumeration are text here."""
    return str if isinstance(kind, Enum) else kind.python_type


def test_a_transaction_is_stored_at_its_end_and_whole(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    storage, other = open_storage(url), read_storage(url)
    study = optuna.create_study(study_name="s", storage=storage)
    with storage.transaction():
        trial = study.ask({"x": FloatDistribution(0, 1)})
        trial.report(0.5, 1)
        with storage.transaction():
            trial.set_user_attr("epoch", 1)
        assert stored_trials(other, "s") == []
    (stored,) = stored_trials(other, "s")
    assert (stored.intermediate_values, stored.user_attrs) == ({1: 0.5}, {"epoch": 1})
    with suppress(ZeroDivisionError), storage.transaction():
        trial.set_user_attr("epoch", 2)
        raise ZeroDivisionError
    (stored,) = stored_trials(other, "s")
    assert stored.user_attrs == {"epoch": 1}
    other.dispose()
    close_storage(storage)


def test_a_study_is_read_once(tmp_path: Path) -> None:
    """Writes by others are not seen; a lock prevents them."""
    url = f"sqlite:///{tmp_path}/study.db"
    storage = open_storage(url)
    assert storage.trials_of("s") == []
    optuna.create_study(study_name="s", storage=storage).enqueue_trial({"x": 1})
    other = RDBStorage(url)
    optuna.load_study(study_name="s", storage=other).ask()
    assert [trial.state for trial in storage.trials_of("s")] == [TrialState.WAITING]
    other.remove_session()
    other.engine.dispose()
    close_storage(storage)


def test_sqlite_writes_a_log_while_the_driver_runs_and_leaves_one_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    storage = open_storage(url)
    optuna.create_study(study_name="s", storage=storage)
    assert (tmp_path / "study.db-wal").exists()
    close_storage(storage)
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]
    tmp_path.chmod(0o500)
    engine = read_storage(url)
    assert stored_trials(engine, "s") == []
    engine.dispose()
    tmp_path.chmod(0o700)


def test_a_reader_that_is_still_there_does_not_keep_the_log(tmp_path: Path) -> None:
    """Found by `make soak`: an open connection of a pool kept the log file."""
    url = f"sqlite:///{tmp_path}/study.db"
    storage = open_storage(url)
    with read_storage(url).connect() as connection:
        connection.exec_driver_sql("SELECT COUNT(*) FROM studies")
    close_storage(storage)
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


def test_who_reads_for_a_moment_as_the_driver_ends_does_not_keep_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by `make soak`, which counts epochs ten times a second, as the live page does."""
    storage = open_storage(f"sqlite:///{tmp_path}/study.db")
    optuna.create_study(study_name="s", storage=storage)
    reader = sqlite3.connect(tmp_path / "study.db")
    assert reader.execute("SELECT COUNT(*) FROM studies").fetchone() == (1,)
    monkeypatch.setattr(time, "sleep", lambda _: reader.close())
    close_storage(storage)
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


MOUNTS = r"""
/dev/sda / ext4 rw 0 0
server:/export /cluster nfs4 rw 0 0
/dev/sdb /cluster/local xfs rw 0 0
server:/my\040data /my\040data nfs rw 0 0
bucket /bucket fuse.s3fs rw 0 0
""".lstrip()


@pytest.mark.parametrize(
    ("path", "on_network"),
    [
        ("/home/me/runs", False),
        ("/cluster/runs/study.db", True),
        ("/cluster/local/runs", False),
        ("/my data/runs", True),
        ("/bucket/runs", True),
    ],
)
def test_file_systems_that_machines_share_are_told_apart(tmp_path: Path, path: str, on_network: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert is_on_network(Path(path), mounts) is on_network
    assert not is_on_network(Path(path), tmp_path / "missing")


@pytest.mark.parametrize("distribution", [IntDistribution(1, 9, step=2), CategoricalDistribution(["a", None, 3, 0.5])])
def test_parameters_come_back_as_they_were_proposed(tmp_path: Path, distribution: Any) -> None:
    storage = open_storage(f"sqlite:///{tmp_path}/study.db")
    study = optuna.create_study(study_name="s", storage=storage)
    proposed = [study.ask({"p": distribution}).params for _ in range(8)]
    found = DriverStorage(storage.database).trials_of("s")
    assert [trial.params for trial in found] == proposed
    assert {type(trial.params["p"]) for trial in found} <= {int, str, float, type(None)}
    close_storage(storage)


def test_a_complete_trial_without_a_value_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    storage = open_storage(f"sqlite:///{path}")
    optuna.create_study(storage=storage, study_name="changed", direction="maximize").optimize(lambda _: 1.0, n_trials=1)
    close_storage(storage)
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM trial_values")
    database.close()
    storage = open_storage(f"sqlite:///{path}")
    with pytest.raises(InvalidInput, match="Trial 0 of changed is complete and has no value"):
        storage.load("changed")
    close_storage(storage)
