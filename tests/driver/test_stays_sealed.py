"""When the test stays sealed: a choice that may be luck, one that nothing improves, and one that did not change."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import holdout_here, plain
from support.small_search import GLYPHS
from support.without_ray import only_records

from search.config.search_config import parse_config
from search.config.yaml_file import apply_settings
from search.plan.runs import RunFolder
from search.plan.search import OpenedSearch, stays_sealed
from search.stages import Stage
from trainables.files import write_json

Opened = Callable[..., OpenedSearch]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    only_records(monkeypatch)


def doubtful(folder: Path, **changes: Any) -> Path:
    """Write a search of one trial whose choice rests on two validation classes alone."""
    content = {
        **GLYPHS, "name": "small", "losses": ["pnp"], "search": {"trials": 1}, "final": {"seeds": 1},
        "selection": {"finalists": 1, "seeds": 1, "on": "split"}, "resources": {"engine": "in_process"}, **changes,
    }  # fmt: skip
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_a_choice_that_may_be_luck_is_tested_on_demand_alone(tmp_path: Path) -> None:
    file, runs = doubtful(tmp_path), tmp_path / "runs"
    said = plain(holdout_here("run", file, "--runs", runs).stderr)
    assert "The choice of small rests on 2 validation classes alone and may be mostly luck" in said
    assert "repeat the command with --yes to open it" in said
    assert RunFolder(runs, "small").selection.exists()
    assert not RunFolder(runs, "small").test.exists()
    assert "may be mostly luck, and a test set" not in plain(holdout_here("run", file, "--yes", "--runs", runs).stderr)
    assert RunFolder(runs, "small").test.exists()


def test_stages_of_the_file_are_an_answer(tmp_path: Path) -> None:
    file, runs = doubtful(tmp_path, stages=["search", "select", "test"]), tmp_path / "runs"
    said = holdout_here("run", file, "--runs", runs)
    assert RunFolder(runs, "small").test.exists()
    warned = re.search(r"so the choice may be mostly luck; (\S+: \w+) confirms", " ".join(plain(said.stdout).split()))
    assert warned is not None
    cure = warned[1].replace(": ", "=")
    assert parse_config(apply_settings(yaml.safe_load(file.read_text()), [cure])).selection.on == "halves"


def chosen(number: int | None = 3, **params: Any) -> dict[str, Any]:
    return {"recommended": {"number": number}, "chosen": {"pnp": {"params": params}}}


@pytest.mark.parametrize(
    ("when", "number", "sealed"), [("if_better", None, True), ("if_better", 0, False), ("always", None, False)]
)
def test_a_network_without_training_that_nothing_beats(
    opened: Opened, when: str, number: int | None, sealed: bool
) -> None:
    plan = opened(losses=["pnp"], final={"test": when}).plan
    assert stays_sealed(plan) is None, "nothing is chosen yet"
    write_json(plan.folder.selection, chosen(number))
    assert (stays_sealed(plan) is not None) == sealed
    write_json(plan.folder.test, {"openings": []})
    assert stays_sealed(plan) is None, "it is tested"


def test_a_successor_with_the_same_choice_opens_no_test(opened: Opened) -> None:
    search = opened(losses=["pnp"])
    plan = replace(search.plan, predecessor="earlier")
    write_json(plan.folder.selection, chosen(alpha=2.0))
    assert stays_sealed(plan) is None, "the earlier search has chosen nothing"
    earlier = RunFolder(plan.folder.runs, "earlier")
    earlier.path.mkdir()
    write_json(earlier.selection, chosen(alpha=4.0))
    assert stays_sealed(plan) is None
    write_json(earlier.selection, chosen(number=7, alpha=2.0))
    assert stays_sealed(plan) is None, "the earlier search was not tested"
    write_json(earlier.test, {"openings": []})
    assert stays_sealed(plan) == f"The choice is that of earlier, whose test stands; {plan.folder.name} opens none."
    assert replace(search, plan=plan).is_done(Stage.TEST)
