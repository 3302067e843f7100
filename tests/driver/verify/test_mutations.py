"""``holdout verify`` finds every damaged file of a finished search from which a number could come."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import holdout_here, plain
from support.finished_search import finish
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.small_search import draw_folder, small_search
from support.tampered import Copied

from search.plan.runs import RunFolder
from search.report.document import write_search_report

HARMLESS = ("report.html", "README.md", "test_openings.jsonl.lock", ".driver.lock")
"""Names of files from which no number is read: pages and locks."""

Mutation = Callable[[bytes], bytes | None]
MUTATIONS: dict[str, Mutation] = {
    "emptied": lambda content: b"",
    "truncated": lambda content: content[: len(content) * 2 // 3],
    "a byte in the middle": lambda content: _flipped(content, len(content) // 2),
    "a byte near the end": lambda content: _flipped(content, len(content) * 9 // 10),
    "deleted": lambda content: None,
}


def _flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a small finished search, with every kind of file; tests must not change it."""
    folder = tmp_path_factory.mktemp("mutations")
    content = small_search(
        draw_folder(folder / "images", classes=8, images=5),
        training={"epochs": 2, "batch_size": 10, "images_per_class": 5, "image_size": 16},
        losses=["pnp"],
        search={"trials": 2},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
    )
    finish(folder / "runs", content)
    write_search_report(folder / "runs", ["small"])
    return folder / "runs"


def kind_of(path: Path, runs: Path) -> str:
    """Return the kind of a file: its place, with one trial of each study and one opening."""
    parts = path.relative_to(runs).parts
    if "trials" in parts:
        return "/".join(("trials", parts[2], path.name))
    if "test" in parts:
        return "/".join(("test", *parts[3:-1], "npz" if path.suffix == ".npz" and "@" in path.name else path.name))
    return "/".join(("images",)) if parts[0] == "test_openings.images" else "/".join(parts)


def contents(database: Path) -> list[str]:
    """Return everything in a database; empty if it cannot be read."""
    try:
        with sqlite3.connect(database) as connection:
            return [*connection.iterdump()]
    except (sqlite3.Error, UnicodeDecodeError):
        return []
    finally:
        connection.close()


def settings(file: Path) -> Any:
    """Return the settings in a search file; None if it cannot be read."""
    try:
        return yaml.safe_load(file.read_bytes())
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return None


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "deleted" else pytest.mark.slow) for name in MUTATIONS]
)  # `make attack` has more of them
def test_every_mutation_is_found_or_harmless(finished: Path, tmp_path: Path, name: str) -> None:
    kinds = {kind_of(path, finished): path for path in sorted(finished.rglob("*")) if path.is_file()}
    assert {"trials/pnp@final/trial.json", "trials/pnp@confirm/best.safetensors", "small/study.db", "images"} <= {
        *kinds
    }
    before = contents(finished / "small" / "study.db")
    missed = []
    for kind, path in kinds.items():
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        copied = Copied(finished, tmp_path / "runs")
        changed, content = copied.runs / path.relative_to(finished), MUTATIONS[name](path.read_bytes() or b"x")
        changed.unlink()
        if content is not None:
            changed.write_bytes(content)
        same = path.name == "study.db" and contents(changed) == before  # in a part of the file that holds nothing
        same |= path.name == "search.yaml" and settings(changed) == settings(path)  # in a comment
        done = holdout_here("verify", "small", "--runs", copied.runs, code=(0, 1, 2))
        if done.returncode == 0 and not same and path.name not in HARMLESS:
            missed.append(kind)
        assert "Traceback" not in done.stdout + plain(done.stderr)
    assert missed == []


def test_a_search_whose_studies_are_lost_is_not_run_again(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs")
    database = copied.path / "study.db"
    database.unlink()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert "small has selection.json and test.json, but the trials of small/pnp, small/pnp@final are missing" in said
    assert f"restore {database} from a copy, or search under a new name" in said
    assert not database.exists()
    database.touch()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert "restore it from a copy" in said


def test_scores_without_their_choice_are_not_chosen_again(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs")
    (copied.path / "selection.json").unlink()
    said = plain(holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs, code=2).stderr)
    assert "small has scores in" in said
    assert "selection.json is missing; restore it from a copy" in said


def test_what_a_killed_driver_left_out_is_written(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs")
    folder = RunFolder(copied.runs, "small")
    shutil.rmtree(folder.path / "models")
    folder.report.unlink()
    folder.summary.unlink()
    dead, living = folder.path / ".selection.json.99999999-ab.draft", folder.path / ".report.html.1-ab.draft"
    for draft in (dead, living):
        draft.touch()
    holdout_here("run", folder.config, "--runs", copied.runs)
    assert folder.report.exists()
    assert folder.summary.exists()
    assert (folder.model("pnp") / "model.json").exists()
    assert not dead.exists()
    assert living.exists()
    living.unlink()
    holdout_here("verify", "small", "--runs", copied.runs)


def test_mlflow_lacks_nothing_after_a_driver_was_killed_at_its_end(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs")
    (copied.runs / "mlflow.db").unlink(missing_ok=True)
    (copied.path / ".driver").write_text("process 1 on another-host\n")
    holdout_here("run", copied.path / "search.yaml", "--runs", copied.runs)
    assert not (copied.path / ".driver").exists()
    assert_mlflow_equals_the_studies(copied.runs, "small", ("pnp",))
