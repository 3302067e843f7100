"""Damaged records of a finished search, one per row: the file, its change, and the expected output; hostile files.

The command fails with that sentence and changes no record.
"""
# ruff: noqa: E501
# fmt: off

import gc
import json
import os
import random
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from support.commands import holdout_here, plain, printed
from support.finished_search import finish
from support.forks import forked
from support.journals import rewrite
from support.refusals import contents, refused
from support.serving import asked
from support.small_search import SHORTEST, draw_folder, small_search
from support.tampered import Copied

from hostile.inputs import KINDS, PLACES, Place, put, with_runs
from hostile.world import World
from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from search.show.live import live_app

Change = Callable[[Path], object]
STATUS, TRIALS, SHOW = ["status", "small"], ["trials", "small"], ["trials", "small", "proxy_anchor", "0"]
REPORT = ["report", "small"]
COMPARE, EXPORT, TEST = ["compare", "small"], ["export", "small", "--to", "exported"], ["test", "small"]
EMBED = ["embed", "runs/small/models/proxy_anchor", "image.png", "--to", "e.npz"]
EMBED_CHECKPOINT = ["embed", "runs/small/trials/proxy_anchor/0000/attempt-1/best.safetensors", "image.png", "--to", "e.npz"]
MODEL = "models/proxy_anchor"
CHECKPOINT = "trials/proxy_anchor/0000/attempt-1/best.safetensors"


def written(content: bytes) -> Change:
    return lambda path: path.write_bytes(content)


def before(line: str) -> Change:
    """Keep the lines before one: still valid YAML, but incomplete."""
    return lambda path: path.write_text(path.read_text().partition(f"\n{line}")[0])


def in_json(**changes: object) -> Change:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def in_model(**changes: object) -> Change:
    return lambda path: in_json(model={**json.loads(path.read_text())["model"], **changes})(path)


def in_text(before: str, after: str) -> Change:
    return lambda path: path.write_text(path.read_text().replace(before, after, 1))


def without_a_line(path: Path) -> None:
    """Remove the line of an epoch of the last trial."""
    first, found, last = path.read_bytes().rpartition(b'{"op_code":8')
    path.write_bytes(first + (found + last).partition(b"\n")[2])


def of_another_version(path: Path) -> None:
    """Replace the ranges of a parameter, with checksums that match."""
    rewrite(path, lambda lines: next(line for line in lines if "distribution" in line).update(distribution="{}"))


def head_of(length: int, content: bytes = b"") -> Change:
    """Write the header of a tensor file that claims a length."""
    return written(struct.pack("<Q", length) + content)


ROWS = [
    ("split.json", in_json(seed=7), EXPORT, "The split was edited: its digest is "),
    ("selection.json", in_json(future=1), COMPARE, "selection.json is damaged, or another version wrote it (ValidationError: "),
    ("selection.json", in_json(rule="mine"), COMPARE, "selection.json was changed after it was frozen (its digest does not match); restore it"),
    ("summary.json", in_json(format=99), COMPARE, "its format is 99 and this version reads 10"),
    ("summary.json", in_json(losses=3), COMPARE, "summary.json is damaged, or another version wrote it ("),
    ("test.json", written(b'{"openings": 3}'), COMPARE, "test.json is damaged, or another version wrote it (ValidationError: "),
    ("../test_openings.jsonl", written(b'{"read": "x"}\n'), COMPARE, "or another version wrote it (KeyError: 'previous'); restore it."),
    ("search.yaml", written(b"losses: []\nsearch: {}\n"), SHOW, "search.yaml is damaged, or another version wrote it (IndexError: "),
    ("search.yaml", before("tracking:"), TEST, "search.yaml is damaged, or another version wrote it (it has no tracking, stages, ship); restore it"),
    ("campaign.yaml", written(b"\0"), STATUS, "campaign.yaml is not valid YAML: unacceptable character #x0000: control characters are not allowed"),
    (f"{MODEL}/model.json", in_json(format=99), EMBED, "describes a model in the format 99, and this version reads 1; export the model again"),
    (f"{MODEL}/model.json", in_json(frame=3), EMBED, "is damaged (TypeError: "),
    (f"{MODEL}/model.json", in_json(decoded_side=1e400), EMBED, "is damaged ("),
    *((f"{MODEL}/model.json", in_json(frame={"side": side, "short_side": 16, "square": False}), EMBED, f"frame.side must be a whole number from 1 to 16384; it is {side!r}); export") for side in (0, 10**9)),
    (f"{MODEL}/model.json", in_model(weights="/etc/passwd"), EMBED, "model.weights must be null; it is '/etc/passwd'); export"),
    ("search.yaml", in_text("- proxy_anchor", "- proxy_anchor\n- triplet"), REPORT, "search.yaml names the losses triplet, of which runs/small/summary.json has no result"),
    ("search.yaml", in_text("name: small", "name: big"), REPORT, "runs/small holds the records of a search called 'big', which are found by that name; rename"),
    (f"{MODEL}/model.safetensors", head_of(10 * 2**30), EMBED, "model.safetensors is not a valid safetensors file ("),
    (f"{MODEL}/model.safetensors", head_of(2, b"{}"), EMBED, "model.safetensors is not the file that model.json next to it describes"),
    (CHECKPOINT, head_of(2, b"{}"), EMBED_CHECKPOINT, "best.safetensors does not describe its network"),
]

DAMAGED_JOURNALS: dict[str, tuple[Change, str]] = {
    "a changed line": (in_text('"step":2', '"step":3'), "study.journal is damaged: line "),
    "a missing line": (without_a_line, "@final trial 0, or a line before it, was changed or removed. Restore"),
    "no journal": (written(b"garbage\n"), "study.journal is damaged: line 1, or a line before it, was changed or removed. Restore the file from a copy, or"),
    "another version's": (of_another_version, "study.journal is damaged, or another version wrote it (KeyError: 'type'); restore it from a copy."),
}
READING: dict[str, tuple[list[str], int]] = {
    " ".join(words): (words, code) for words, code in (
        (STATUS, 0), (TRIALS, 2), (SHOW, 2), (REPORT, 2), (EXPORT, 2), (TEST, 2), (["sync", "small"], 2), (["verify", "small"], 1),
        (["run", "runs/small/search.yaml"], 2),
    )
}


@pytest.fixture
def copied(world: World, here: Path) -> Copied:
    shutil.copy(world.origin / "image.png", here)
    return Copied(world.origin / "runs", here / "runs")


@pytest.mark.parametrize(("file", "change", "command", "sentence"), ROWS, ids=[f"{row[2][0]}: {row[0]}: {row[3][-40:]}" for row in ROWS])
def test_a_changed_record_is_a_sentence(
    file: str, change: Change, command: list[str], sentence: str, copied: Copied, here: Path
) -> None:
    path = copied.path / file
    if path.exists():
        content = path.read_bytes()
        path.unlink()  # it may share its bytes with the untouched search
        path.write_bytes(content)
    change(path)
    runs = [] if command[0] == "embed" else ["--runs", "runs"]
    refused(here, [*command, *runs], sentence)


@pytest.mark.parametrize("damage", DAMAGED_JOURNALS)
def test_a_damaged_journal_is_one_sentence_everywhere(
    damage: str, copied: Copied, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS")  # it would be the first mistake
    change, sentence = DAMAGED_JOURNALS[damage]
    change(copied.journal)
    before = contents(here)
    for command, (words, code) in READING.items():
        if command == "status small" and damage == "another version's":
            continue  # it reads no ranges
        done = holdout_here(*words, "--runs", "runs", code=code)
        said = plain(done.stderr if code else done.stdout)
        assert said.count(sentence) == 1, (command, said)
        assert len(done.stderr.splitlines()) < 4, (command, said)
    status, _, body = asked(live_app(copied.runs), "/api/searches/small/report", "", (b"host", b"localhost"))
    assert status == 404, body
    assert sentence in body
    assert contents(here) == before, "nothing is written"


def run_too_deep(connection: Connection) -> None:
    for words in (["verify", "small"], ["remove", "small", "--yes"]):
        connection.send(holdout_here(*words, "--runs", "runs", code=2).stderr)


def test_folders_in_many_levels_are_a_sentence(copied: Copied) -> None:
    """The commands have a process of their own, since an iterator that recursion interrupts is never closed."""
    here = os.open(copied.path / "models", os.O_RDONLY)
    for _ in range(1_200):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    process, connection = forked(run_too_deep)
    said = [plain(connection.recv()), plain(connection.recv())]
    process.join()
    sentence = "Folders are nested in more levels than this command can follow; move or remove them."
    assert [each.endswith(sentence) and "Traceback" not in each for each in said] == [True, True], said
    assert os.fstat(here).st_nlink, "nothing is removed in part"
    os.close(here)
    assert (copied.path / "selection.json").exists()
    subprocess.run(["rm", "-rf", copied.path / "models"], check=True)  # pytest could not


# MLflow databases that were changed between a run and the command that writes to them.

def _sql(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.executescript(";".join(statements))

    return change


REFUSED: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"no database" * 1000),
    "a folder": lambda path: [path.unlink(), path.mkdir()],
    "of another workspace": _sql("UPDATE experiments SET workspace = '/dev/zero'"),
    "of a later version": _sql("UPDATE alembic_version SET version_num = 'ffffffffffff'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_mlflow_cannot_write_is_a_sentence(name: str, copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS")
    REFUSED[name](copied.runs / "mlflow.db")
    done = holdout_here("sync", "small", "--register", "--runs", copied.runs, code=(1, 2))
    assert len(done.stderr.strip().splitlines()) == 1
    assert "MLflow cannot be written (" in plain(done.stderr) or "mlflow.db" in plain(done.stderr)


def test_an_emptied_mlflow_is_written_again(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS")
    (copied.runs / "mlflow.db").write_bytes(b"")
    said = printed("sync", "small", "--register", "--runs", copied.runs)
    assert "models:/small@champion is the model of " in said


# A sample of every kind of hostile file in every place where a command reads one.

DEEP, PRIVATE = "100,000 lists in one another", "a link to a private file"
PICKLES = {
    ".pth": ("a pickle", "torch.save", "legacy torch.save"), ".safetensors": ("torch.save",), ".faiss": ("a pickle",),
    ".npz": ("a pickle", "arrays of objects"),
}  # fmt: skip
"""Files whose loading may run any code."""


def is_record(place: Place) -> bool:
    return Path(place.file).parent.name == "small"


def sample(place: Place) -> Iterator[str]:
    """Yield the kinds that are dangerous in a place, and another."""
    yield "a pipe"  # reading one without a writer never ends
    yield PRIVATE
    yield from PICKLES.get(Path(place.file).suffix, ())
    if is_record(place):
        yield DEEP
    yield random.Random(place.file).choice(place.kinds)


SAMPLE = [(place, kind) for place in PLACES for kind in dict.fromkeys(sample(place)) if kind in place.kinds]


@pytest.fixture(scope="module")
def copy(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "here"
    shutil.copytree(world.origin, folder)
    return folder


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("place", "kind"), SAMPLE, ids=[f"{place.file}: {kind}" for place, kind in SAMPLE])
def test_it_is_one_sentence_and_nothing_is_written(
    place: Place, kind: str, copy: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    path = copy / place.file
    before, sentences = path.read_bytes(), place.says or (path.name,)
    if is_record(place) and kind == PRIVATE:
        sentences = (f"{path.name} is a link, which is not followed",)
    put(KINDS[kind], path, world)
    try:
        if kind == DEEP:
            gc.collect()  # else a destructor that runs in the depth of a nested file fails there
        said = refused(copy, with_runs(place.command.replace("FILE", place.file)), *sentences)
    finally:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        path.write_bytes(before)
    assert not world.canary.exists()
    assert world.secret_word not in said


def test_classes_of_one_image_are_trained_scored_and_verified(tmp_path: Path) -> None:
    root, runs = draw_folder(tmp_path / "images", images=5), tmp_path / "runs"
    content = small_search(root, **{**SHORTEST, "losses": ["proxy_anchor"]})
    split = make_plan(parse_config(content), tmp_path / "none").split
    for name in (split.train[0], split.validation[0], split.test[0]):
        for image in sorted((root / name).iterdir())[1:]:
            image.unlink()
    finish(runs, content)
    for command in ("report", "verify"):
        holdout_here(command, "small", "--runs", runs)
    assert "proxy_anchor" in printed("compare", "small", "--runs", runs)
