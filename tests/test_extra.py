"""The extra ``search``: commands that run searches name what is missing, and all others do without it."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from support.commands import holdout_without, plain
from support.finished_search import finish

from search.packages import EXTRA, INSTALL, missing_packages

ROOT = Path(__file__).parents[1]
NAMED = ", ".join(EXTRA)
SEARCH: dict[str, Any] = {
    "name": "bare",
    "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4, "size": 16},
    "model": {"backbone": "convnet", "embedding_dim": 8},
    "training": {"epochs": 1, "batch_size": 10, "image_size": 16},
    "losses": ["mpa"],
    "search": {"trials": 2},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 2},
}


def test_the_packages_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [Requirement(line).name for line in project["optional-dependencies"]["search"]] == list(EXTRA)
    assert missing_packages() == []


def test_a_folder_of_a_packages_name_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_such_package").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert missing_packages(["no_such_package", "mlflow"]) == ["no_such_package"]


@pytest.mark.parametrize(
    ("arguments", "what", "missing"),
    [
        (["run", "bare.yaml"], "Running a search", NAMED),
        (["serve"], "The live page", "fastapi, uvicorn"),
        (["submit", "bare.yaml", "--address", "http://127.0.0.1:9"], "A cluster", "ray"),
    ],
    ids=["run", "serve", "submit"],
)
def test_a_command_that_needs_the_extra_names_it(arguments: list[str], what: str, missing: str, tmp_path: Path) -> None:
    (tmp_path / "bare.yaml").write_text(yaml.safe_dump(SEARCH))
    done = holdout_without(EXTRA, tmp_path, *arguments)
    sentence = f"{what} needs packages that are not installed: {missing}; run `{INSTALL}`."
    assert done.returncode == 2, done.stderr
    assert plain(done.stderr).endswith(sentence)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["bare.yaml"]


def test_the_other_commands_do_without_it(tmp_path: Path) -> None:
    """A search that was run elsewhere is read, compared, verified and reported."""
    runs = tmp_path / "runs"
    finish(runs, SEARCH)
    for command in ("compare", "verify", "report"):
        done = holdout_without(EXTRA, tmp_path, command, "bare", "--runs", runs)
        assert done.returncode == 0, done.stderr
    assert (runs / "bare" / "report.html").is_file()


def test_doctor_warns_of_what_is_missing(tmp_path: Path) -> None:
    done = holdout_without(EXTRA, tmp_path, "doctor")
    assert done.returncode == 0, done.stderr
    assert f"not installed: {NAMED}; models can be used" in plain(done.stdout)
