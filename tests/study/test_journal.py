"""The journal: compared with plain Optuna, read by others while it is written, cut, changed and out of space."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings, strategies as st
from optuna.distributions import FloatDistribution
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from support.journals import trials_in, with_checksums
from support.small_disk import SmallDisk

from search.study import JournalReader, StudyCounts, StudyStorage, copy_studies, open_studies, read_studies
from search.trials import Tally
from trainables.common.errors import Failure, InvalidInput
from trainables.common.storage import DiskFull

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
ACTIONS = st.tuples(st.just("enqueue"), st.floats(0, 1)) | st.tuples(st.just("ask")) | STEPS | ATTRIBUTES | ENDS


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
        trial.suggest_int("odd", 1, 9, step=2)
        if trial.suggest_categorical("kind", ["a", None, 3, 0.5]) == "a":
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


def counted(path: Path) -> StudyCounts:
    counts = StudyCounts()
    for log in JournalReader(path).read():
        counts.apply(log)
    return counts


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, StudyStorage]]:
    """A journal, and the storage of its driver."""
    path = tmp_path_factory.mktemp("journal") / "study.journal"
    storage = open_studies(path)
    yield path, storage
    storage.close()


@settings(deadline=None, max_examples=15)
@given(actions=st.lists(ACTIONS, max_size=25), whole=st.booleans())
def test_every_reader_finds_what_optuna_has_in_memory(
    shared: tuple[Path, StudyStorage], actions: list[tuple[Any, ...]], whole: bool
) -> None:
    """The same actions leave the same trials for us, the next driver, Optuna, and our counts without Optuna."""
    path, storage = shared
    name, plain = f"a/{next(numbers)}", InMemoryStorage()
    ours, theirs = (
        optuna.create_study(
            study_name=name, storage=each, direction="maximize", sampler=optuna.samplers.RandomSampler(1)
        )
        for each in (storage, plain)
    )
    with storage.transaction() if whole else nullcontext():
        for study in (ours, theirs):
            study.set_user_attr("digest", {"of": [1, 2]})
            for action in actions:
                carry_out(study, action)
    expected = told(theirs.get_trials())
    assert told(ours.get_trials()) == expected
    assert told(read_studies(path).trials_of(name)) == expected
    assert told(copy_studies(path).trials_of(name)) == expected
    assert told(trials_in(path, name)) == expected
    counts = counted(path)
    assert counts.tally(name) == Tally.of(theirs.get_trials())
    assert counts.attributes[name] == {"digest": {"of": [1, 2]}} == storage.attributes_of(name)
    values: dict[tuple[int, int], str] = {(number, step): repr(value) for number, step, value in counts.reports[name]}
    assert values == {
        (trial.number, step): repr(value)
        for trial in theirs.trials
        for step, value in trial.intermediate_values.items()
    }


def test_a_transaction_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    storage, other = open_studies(path), read_studies(path)
    assert other.trials_of("s") == []
    study = optuna.create_study(study_name="s", storage=storage)
    with storage.transaction():
        trial = study.ask({"x": FloatDistribution(0, 1)})
        trial.report(0.5, 1)
        with storage.transaction():
            trial.set_user_attr("epoch", 1)
        assert other.trials_of("s") == []
    (stored,) = other.trials_of("s")
    assert (stored.intermediate_values, stored.user_attrs) == ({1: 0.5}, {"epoch": 1})
    with suppress(ZeroDivisionError), storage.transaction():
        trial.set_user_attr("epoch", 2)
        raise ZeroDivisionError
    with pytest.raises(Failure, match="An earlier change of the studies failed; run the same command again"):
        trial.set_user_attr("epoch", 3)
    storage.close()
    (stored,) = other.trials_of("s")
    assert stored.user_attrs == {"epoch": 1}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A journal of two studies; its last transaction is the end of trial 1 of birds/mpa, in three lines."""
    path = tmp_path / "study.journal"
    storage = open_studies(path)
    for name in ("birds/pnp", "birds/mpa"):
        study = optuna.create_study(study_name=name, storage=storage, direction="maximize")
        for _ in range(2):
            with storage.transaction():
                trial = study.ask({"x": FloatDistribution(0, 1)})
            with storage.transaction():
                trial.report(0.5, 1)
                trial.set_user_attr("outcome", "all 1 epochs trained")
                study.tell(trial, 0.5)
    storage.close()
    return path


def test_a_driver_killed_at_any_byte_of_a_transaction_loses_only_that(written: Path) -> None:
    content = written.read_bytes()
    start = len(b"".join(content.splitlines(keepends=True)[:-3]))
    written.write_bytes(content[:start])
    before = JournalReader(written).read()
    others = told(trials_in(written, "birds/pnp"))
    for size in range(start, len(content)):
        written.write_bytes(content[:size])
        reader = JournalReader(written)
        assert (reader.read(), reader.end) == (before, start)
        if size % 50:
            continue
        storage = open_studies(written)
        assert written.read_bytes() == content[:start]
        (_, trial) = storage.trials_of("birds/mpa")
        assert (trial.state, trial.intermediate_values, trial.user_attrs) == (TrialState.RUNNING, {}, {})
        storage.set_trial_user_attr(trial._trial_id, "outcome", "resumed")
        storage.close()
        assert trials_in(written, "birds/mpa")[1].user_attrs == {"outcome": "resumed"}
        assert told(trials_in(written, "birds/pnp")) == others


def test_a_changed_or_missing_line_is_named_with_its_trial(written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    for place, line in enumerate(lines):
        for kind, changed in {
            "a digit": [line.replace(b'"op_code":', b'"op_code":1', 1)],
            "its checksum": [line[:-3] + bytes([line[-3] ^ 1]) + line[-2:]],
            "half of it": [line[: len(line) // 2] + b"\n"],
            "no JSON": [b"\xff\x00\n"],
            "none": [],
            "twice": [line, line],
        }.items():
            if kind == "none" and place == len(lines) - 1:
                continue  # as after a kill
            written.write_bytes(b"".join([*lines[:place], *changed, *lines[place + 1 :]]))
            for read in (read_studies, copy_studies, open_studies, counted):
                with pytest.raises(InvalidInput, match=rf"study\.journal is damaged: line ({place + 1}|{place + 2})\b"):
                    read(written)
    state = next(line for line in lines[::-1] if b'"values"' in line)
    broken = [line.replace(b"0.5", b"0.9") if line == state else line for line in lines]
    written.write_bytes(b"".join(broken))
    with pytest.raises(InvalidInput, match=r"line \d+, at birds/mpa trial 1, or a line before it, was changed"):
        read_studies(written)


@pytest.mark.parametrize(
    "change",
    [{"op_code": 99}, {"study_id": 7}, {"trial_id": 70}, {"state": "x"}, {"param_value_internal": "x"}],
    ids=str,
)
def test_lines_that_mean_nothing_are_a_sentence_or_ignored(written: Path, change: dict[str, Any]) -> None:
    logs = [json.loads(line) for line in written.read_text().splitlines()]
    place = next(i for i, log in enumerate(logs) if change.keys() <= log.keys() and i > 2)
    logs[place] |= change
    written.write_bytes(with_checksums(logs))
    for read in (read_studies, copy_studies, open_studies):
        with suppress(InvalidInput):  # nothing else
            read(written).trials_of("birds/pnp")


def test_notes_of_another_program_are_left_alone(written: Path) -> None:
    theirs = JournalStorage(JournalFileBackend(str(written)))
    study = optuna.load_study(study_name="birds/mpa", storage=theirs)
    storage = open_studies(written)
    theirs.set_study_system_attr(0, "dashboard:note", "look")
    ours = optuna.load_study(study_name="birds/mpa", storage=storage)
    ours.ask()
    study.set_user_attr("note", "again")
    storage.close()
    again = open_studies(written)
    assert len(again.trials_of("birds/mpa")) == 3
    assert again.attributes_of("birds/mpa") == {}
    again.close()
    assert study.user_attrs == {"note": "again"}
    assert len(study.trials) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda study, storage: study.tell(study.ask({"x": FloatDistribution(0, 1)}), 0.9),
        lambda study, storage: study.enqueue_trial({"x": 0.5}),
        lambda study, storage: optuna.create_study(study_name="mine", storage=storage),
        lambda study, storage: optuna.delete_study(study_name="birds/mpa", storage=storage),
    ],
    ids=["a trial", "an enqueued trial", "a study", "a deleted study"],
)
def test_changes_by_another_program_are_named_before_anything_is_written(
    written: Path, change: Callable[[optuna.Study, JournalStorage], object]
) -> None:
    storage, whole = open_studies(written), written.read_bytes()
    theirs = JournalStorage(JournalFileBackend(str(written)))
    theirs.set_study_system_attr(0, "dashboard:note", "look")
    change(optuna.load_study(study_name="birds/pnp", storage=theirs), theirs)
    line, changed = whole.count(b"\n") + 2, written.read_bytes()
    says = rf"study\.journal was written by another program: line {line} has no checksum"
    for read in (read_studies, copy_studies, open_studies, counted):
        with pytest.raises(InvalidInput, match=says):
            read(written)
    with pytest.raises(InvalidInput, match=says):  # of a driver that runs
        optuna.load_study(study_name="birds/mpa", storage=storage).ask()
    storage.close()
    assert written.read_bytes() == changed
    written.write_bytes(b"".join(line for line in changed.splitlines(keepends=True) if b'"crc":' in line))
    assert written.read_bytes() == whole


def test_a_second_writer_is_refused_at_its_first_change(written: Path) -> None:
    first, second = open_studies(written), open_studies(written)
    optuna.load_study(study_name="birds/mpa", storage=first).ask()
    before = written.read_bytes()
    with pytest.raises(Failure, match=r"Another process writes .*study\.journal; end it"):
        optuna.load_study(study_name="birds/mpa", storage=second).ask()
    assert written.read_bytes() == before
    first.close()
    second.close()


def test_a_disk_that_fills_in_an_append_keeps_what_was_told(disk: SmallDisk) -> None:
    path = disk.path / "study.journal"
    storage = open_studies(path)
    study = optuna.create_study(storage=storage, study_name="small")
    study.ask()
    disk.leave(5_000)
    with pytest.raises(DiskFull, match=r"There is no space left for .*/study\.journal, where 0\.0 MB are free"):
        study.set_user_attr("large", "x" * 100_000)
    with pytest.raises(Failure, match="run the same command again"):
        study.set_user_attr("small", 1)
    storage.close()
    assert read_studies(path).attributes_of("small") == {}
    disk.fill()
    with pytest.raises(DiskFull, match=r"no space left for .*/other\.journal"):
        optuna.create_study(storage=open_studies(disk.path / "other.journal"), study_name="other")
    disk.clear()
    storage = open_studies(path)
    optuna.load_study(storage=storage, study_name="small").set_user_attr("small", 1)
    storage.close()
    assert copy_studies(path).attributes_of("small") == {"small": 1}
    assert len(trials_in(path, "small")) == 1


def test_hidden_studies_can_be_created_again_in_a_copy(written: Path) -> None:
    content = written.read_bytes()
    copy = copy_studies(written, without=["birds/pnp"])
    assert copy.trials_of("birds/pnp") == []
    optuna.create_study(study_name="birds/pnp", storage=copy).enqueue_trial({"x": 1})
    assert [trial.state.name for trial in copy.trials_of("birds/pnp")] == ["WAITING"]
    assert told(copy.trials_of("birds/mpa")) == told(copy_studies(written).trials_of("birds/mpa"))
    assert written.read_bytes() == content
