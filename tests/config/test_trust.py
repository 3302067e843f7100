"""A stored search that somebody else wrote contacts and imports nothing that the user did not allow."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import holdout_here, plain, refusal
from support.driving import Opened, drive
from support.finished_search import finish
from support.journals import rewritten
from support.listening import listening
from support.small_search import GLYPHS, small_search

import holdout
from search.driver.finish import write_summary
from search.driver.make_plan import read_plan
from search.records.writable import open_search
from search.trust import forget, started
from trainables.common.errors import InvalidInput

READ = [
    ("status",), ("status", "small"), ("trials", "small"), ("trials", "small", "pnp", "0"), ("report", "small"),
    ("verify", "small"), ("disk",), ("sync", "small"), ("sync", "small", "--register"),
    ("export", "small", "--to", "exported"), ("select", "small"), ("test", "small"), ("remove", "small", "--yes"),
]  # fmt: skip
"""Every command that opens a stored search."""


@pytest.fixture(scope="module")
def origin(search_made: Opened, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a search of trainings that nobody ran; not to be changed."""
    runs = tmp_path_factory.mktemp("origin") / "runs"
    with closing(search_made(runs, losses=["pnp"], search={"trials": 2})) as search:
        drive(search)
        write_summary(search)
    return runs


@pytest.fixture
def stranger(origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs folder of a search that this user did not start, with a variable that its file could name."""
    monkeypatch.setenv("MY_SECRET", "for-no-eye")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(origin, tmp_path / "runs")
    return tmp_path / "runs"


def rewrite(runs: Path, **changes: Any) -> None:
    """Change keys such as ``tracking__uri`` of the stored search file."""
    file = runs / "small" / "search.yaml"
    content = yaml.load(file.read_text(), yaml.CSafeLoader)  # ten times as fast
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            content[section][name] = value
        else:
            content[section] = value
    file.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a listener that nobody may contact."""
    with listening() as (port, heard):
        yield port
        assert not heard


OF_MODELS = {entry for entry in READ if entry[0] in ("verify", "sync") or (len(entry) == 4 and entry[0] == "trials")}


@pytest.mark.parametrize(
    ("key", "address", "refused"),
    [
        ("checkpoints__storage_path", "ftp://127.0.0.1:PORT/x", OF_MODELS),
        ("tracking__uri", "http://127.0.0.1:PORT/${MY_SECRET}", {entry for entry in READ if entry[0] == "sync"}),
    ],
)
def test_no_command_contacts_what_a_stranger_names(
    key: str, address: str, refused: set[tuple[str, ...]], stranger: Path, port: int
) -> None:
    rewrite(stranger, **{key: address.replace("PORT", str(port))})
    for command in [entry for entry in READ if key != "tracking__uri" or entry in refused]:
        done = holdout_here(*command, "--runs", stranger, code=(0, 1, 2))
        said = plain(done.stdout + done.stderr)
        assert "for-no-eye" not in said
        if command in refused:
            assert f"small names {key.replace('__', '.')}: {address.partition(':PORT')[0]}" in said
            assert "add --trust-code" in said


def test_a_search_that_the_user_started_needs_no_option(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy does, and a changed address."""
    monkeypatch.chdir(tmp_path)  # for the artifacts of MLflow's database
    runs = tmp_path / "runs"
    tracking = {"uri": f"sqlite:///{tmp_path}/x.db"}
    content = small_search(image_folder, losses=["pnp"], search={"trials": 2}, tracking=tracking)
    with closing(open_search(read_plan(content, runs))) as search:
        drive(search)
    assert "MLflow holds all" in holdout_here("sync", "small", "--runs", runs).stdout
    shutil.copytree(runs, tmp_path / "copy")
    assert "--trust-code" in holdout_here("sync", "small", "--runs", tmp_path / "copy", code=2).stderr
    rewrite(runs, tracking__uri=f"sqlite:///{tmp_path}/y.db")
    refused = holdout_here("sync", "small", "--runs", runs, code=2)
    assert f"small names tracking.uri: sqlite:///{tmp_path}/y.db" in plain(refused.stderr)
    assert not (tmp_path / "y.db").exists()
    allowed = holdout_here("sync", "small", "--runs", runs, "--trust-code")
    assert "MLflow holds all" in allowed.stdout


def test_a_file_with_mistakes_leaves_the_record_as_it_was(image_folder: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    content = small_search(image_folder, tracking={"uri": f"sqlite:///{tmp_path}/x.db"})
    open_search(plan := read_plan(content, runs)).close()
    before = started(plan.folder.path)
    with pytest.raises(InvalidInput, match=r"search\.seed: the search small began with"):
        read_plan({**content, "search": {"seed": 1}, "tracking": {"uri": f"sqlite:///{tmp_path}/y.db"}}, runs)
    assert before is not None
    assert started(plan.folder.path) == before
    with pytest.raises(InvalidInput):
        read_plan({**content, "name": "other", "losses": ["no loss"]}, runs)
    assert started(runs / "other") is None


def test_a_search_that_is_trusted_in_python_is_the_only_one(
    stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder counts, not its name, which another one has below another current folder."""
    for runs in (stranger, tmp_path / "other" / "runs"):
        if runs != stranger:
            shutil.copytree(stranger, runs)
        rewrite(runs, checkpoints__storage_path="ftp://127.0.0.1:1/x")
    trusted = holdout.open("small", runs="runs", trust_code=True)
    with pytest.raises(ConnectionRefusedError):
        trusted.trial("pnp", 0)
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(InvalidInput, match="neither imported nor contacted"):
        holdout.open("small", runs="runs").trial("pnp", 0)


# Code.

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("imported").touch()
"""


@pytest.fixture
def evil(stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that a command can import; yield the file that exists once it was."""
    (tmp_path / "evil_module.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "imported"
    sys.modules.pop("evil_module", None)


def test_digests_are_checked_without_the_code_and_the_rest_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a search that the user started, nothing is asked."""
    (tmp_path / "kind_module.py").write_text(
        "from trainables.losses.pairs import Contrastive\nclass Kind(Contrastive):\n    space = {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    runs = tmp_path / "runs"
    finish(runs, {**GLYPHS, "name": "small", "losses": ["kind_module:Kind"], "final": {"seeds": 1}})
    verify = ("verify", "small", "--runs", runs)
    assert "ok  summary.json" in holdout_here(*verify).stdout
    forget(runs / "small")
    sys.modules.pop("kind_module")
    done = holdout_here(*verify, code=2)
    assert "ok  the studies: their digests" in done.stdout
    assert "the ledger" in done.stdout.splitlines()[-1]
    assert "summary.json" not in done.stdout
    assert "small names kind_module:Kind, which is neither imported nor contacted" in plain(done.stderr)
    assert "kind_module" not in sys.modules
    refused = holdout_here("export", "small", "--to", tmp_path / "exported", "--runs", runs, code=2)
    assert "add --trust-code" in plain(refused.stderr)
    journal = runs / "small" / "study.journal"
    untouched = journal.read_bytes()
    with rewritten(journal) as found:
        for entry in (entry for entry in found if entry.get("values")):
            entry["values"] = [entry["values"][0] + 0.01]
    changed = holdout_here(*verify, code=1)
    assert "The study small/kind was changed: its digest is" in plain(changed.stderr)
    journal.write_bytes(untouched)
    ledger = runs / "test_openings.jsonl"
    lines = ledger.read_text()
    ledger.write_text("".join(reversed(lines.splitlines(keepends=True))))
    assert "test_openings.jsonl" in refusal(*verify, code=1)
    ledger.write_text(lines)
    assert "ok  split.json: the split" in holdout_here(*verify, "--trust-code", code=(0, 1)).stdout


CODE: list[dict[str, Any]] = [
    {"losses": ["evil_module:Loss"]},
    {"losses": [{"name": "pnp2", "part": "evil_module:Loss"}]},
    {"dataset": {"name": "evil_module:Images"}},
    {"model__backbone": "evil_module:Network"},
    {"search__objective": "evil_module:metric"},
    {"training__sampler": "evil_module:Sampler"},
    {"ship": ["evil_module.part"]},
]


REFUSED = ("verify", "sync", "select", "test")
OF_CODE = [entry for entry in READ if entry[0] in ("verify", "test", "report")]


@pytest.mark.parametrize("change", CODE, ids=lambda change: next(iter(change)))
def test_no_command_imports_the_code_that_a_stranger_names(change: dict[str, Any], stranger: Path, evil: Path) -> None:
    rewrite(stranger, **change)
    for command in READ if change is CODE[0] else OF_CODE:
        done = holdout_here(*command, "--runs", stranger, code=(0, 1, 2))
        assert not evil.exists(), command
        if command[0] == "verify" and "ship" not in change:  # which may change
            assert done.returncode == 1
            assert "FAILED: search.yaml was changed" in plain(done.stderr)
        elif command[0] in REFUSED:
            assert done.returncode == 2
            assert "small names evil_module" in plain(done.stderr)
            assert "add --trust-code" in plain(done.stderr)


def test_a_forged_outcome_sends_no_control_characters_to_a_csv_file(stranger: Path, tmp_path: Path) -> None:
    with rewritten(stranger / "small" / "study.journal") as found:
        for entry in (entry for entry in found if "outcome" in entry.get("user_attr", {})):
            entry["user_attr"]["outcome"] = "a\x1b[2J\u202eb"
    holdout_here("trials", "small", "--runs", stranger, "--csv", tmp_path / "trials.csv")
    assert r"a\x1b[2J\u202eb" in (tmp_path / "trials.csv").read_text()
