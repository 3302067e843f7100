"""Tests whose number of seeds is not fixed (``final.seeds: auto``), from the first look to the last."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, plain, write_search
from support.small_search import GLYPHS

import holdout as library
from search.driver import pipeline
from search.plan.runs import RunFolder
from search.plan.search import OpenedSearch

CONTENT: dict[str, Any] = {
    "name": "looks",
    **GLYPHS,
    "final": {"seeds": "auto", "at_most": 5},
    "metrics": {"test": ["map_at_r"]},
    "resources": {"engine": "in_process"},
}
OF = [3, 5]


@pytest.fixture(scope="module", autouse=True)
def always_open() -> Iterator[None]:
    """Let every undecided pair stay in reach, so that a test goes on to its last look."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("search.report.statistics.Estimate.is_in_reach", lambda *_: True)
        yield


@pytest.fixture(scope="module")
def tested(always_open: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run a search with two looks; return its folder and what it printed."""
    folder = tmp_path_factory.mktemp("looks")
    return folder, run(folder)


def run(folder: Path, **changes: Any) -> str:
    file = write_search(folder / "looks.yaml", {**CONTENT, **changes})
    done = holdout_here("run", file, "--runs", folder / "runs")
    return plain(done.stdout + done.stderr)


def written(folder: Path) -> Any:
    return json.loads((folder / "runs/looks/test.json").read_text())


def looks_of(folder: Path) -> list[Any]:
    return [record["look"] for record in written(folder)["openings"]]


def state_of(folder: Path) -> str:
    return plain(holdout_here("status", "looks", "--runs", folder / "runs").stdout)


def test_undecided_pairs_get_more_seeds(tested: tuple[Path, str]) -> None:
    tmp_path, said = tested
    assert "pairs are undecided after 3 seeds; each configuration gets 2 more" in said
    assert "the test was planned to look after 3, 5 seeds, and ended after 5, since no more were planned" in said
    assert looks_of(tmp_path) == [{"seeds": seeds, "of": OF} for seeds in OF]
    assert written(tmp_path)["ended"] == {"seeds": 5, "why": "no more were planned"}
    comparison = library.compare("looks", runs=tmp_path / "runs")
    assert {pair.seeds for pair in comparison.pairs} == {5}
    for pair in comparison.pairs:  # the last look has three fifths of the error
        assert pair.p_corrected == pytest.approx(min(1, pair.p * len(comparison.pairs) / 0.6))
    verified = plain(holdout_here("verify", "looks", "--runs", tmp_path / "runs").stdout)
    assert "the looks after 3, 5 seeds, and their end" in verified
    assert "tested" in state_of(tmp_path)


def test_the_first_look_ends_a_test_that_more_seeds_could_not_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("search.report.statistics.Estimate.is_in_reach", lambda *_: False)
    run(tmp_path)
    assert looks_of(tmp_path) == [{"seeds": 3, "of": OF}]
    assert written(tmp_path)["ended"]["seeds"] == 3


def test_a_test_of_rows_that_are_the_same_ends_at_once(tmp_path: Path) -> None:
    run(tmp_path, final={"seeds": "auto", "within": 1000})
    assert written(tmp_path)["ended"] == {"seeds": 3, "why": "every pair is decided"}


def test_a_driver_killed_between_two_looks_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(searches: Sequence[OpenedSearch], *_: object) -> list[OpenedSearch]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "_undecided", killed)
        file = write_search(tmp_path / "looks.yaml", CONTENT)
        holdout_here("run", file, "--runs", tmp_path / "runs", code=130)
    assert "ended" not in written(tmp_path)
    assert not RunFolder(tmp_path / "runs", "looks").is_tested
    assert "training for the test" in state_of(tmp_path)
    interrupted = written(tmp_path)["openings"][0]
    run(tmp_path)
    assert looks_of(tmp_path) == [{"seeds": seeds, "of": OF} for seeds in OF]
    assert written(tmp_path)["openings"][0] == interrupted
    assert "differs" not in plain(holdout_here("verify", "looks", "--runs", tmp_path / "runs").stdout)


def test_verify_finds_another_end(tested: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(tested[0] / "runs", tmp_path / "runs")
    content = written(tmp_path)
    content["ended"]["why"] = "every pair is decided"
    (tmp_path / "runs/looks/test.json").write_text(json.dumps(content))
    done = holdout_here("verify", "looks", "--runs", tmp_path / "runs", code=1)
    assert "test.json ended why" in plain(done.stdout + done.stderr)


@pytest.mark.parametrize("seeds", ["several", 0, 1.5])
def test_other_numbers_are_refused(tmp_path: Path, seeds: object) -> None:
    file = write_search(tmp_path / "looks.yaml", {**CONTENT, "final": {"seeds": seeds}})
    refusal = plain(holdout_here("run", file, "--runs", tmp_path / "runs", code=2).stderr)
    assert refusal.count("final.seeds") == 1, refusal
