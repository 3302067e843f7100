"""The margin of equivalence of a search, from its file to the comparison: frozen before the test."""

import json
from pathlib import Path

import pytest
from support.commands import holdout_here, plain, write_search
from support.finished_search import finish
from support.small_search import GLYPHS

import holdout as library
from search.config.search_config import parse_config
from trainables.errors import InvalidInput

CONTENT = {**GLYPHS, "name": "alike", "final": {"seeds": 2, "within": 99}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs: Path = tmp_path_factory.mktemp("alike") / "runs"
    return finish(runs, CONTENT)


def test_the_margin_is_frozen_with_the_choice_and_decides(runs: Path) -> None:
    assert json.loads((runs / "alike/selection.json").read_text())["family"]["within"] == 99
    comparison = library.compare("alike", runs=runs)
    assert comparison.pairs
    assert all(pair.within == 0.99 and pair.same for pair in comparison.pairs)
    assert not any("margin" in warning for warning in comparison.warnings)
    assert "the same within 99 points" in plain(holdout_here("compare", "alike", "--runs", runs).stdout)
    assert holdout_here("verify", "alike", "--runs", runs).returncode == 0


def test_another_margin_is_said_to_come_after_the_test(runs: Path) -> None:
    said = plain(holdout_here("compare", "alike", "--runs", runs, "--within", "1e-9").stdout)
    assert "chosen after opening: the margin of equivalence is 1e-09; frozen with the choice was 99" in said
    assert "undecided" in said
    comparison = library.compare("alike", runs=runs, within=1e-9)
    assert not any(pair.same for pair in comparison.pairs)


@pytest.mark.parametrize("margin", ["0", "-1", "nan", "inf"])
def test_a_margin_that_is_none_is_refused(runs: Path, margin: str) -> None:
    refusal = plain(holdout_here("compare", "alike", "--runs", runs, "--within", margin, code=2).stderr)
    assert f"within is {margin}; the margin of equivalence is above 0, such as 1 for one point" in refusal


def test_the_file_refuses_it_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"final\.within"):
        parse_config(CONTENT | {"final": {"within": 0}})
    path = write_search(tmp_path / "wrong.yaml", CONTENT | {"final": {"within": "small"}})
    assert "final.within" in holdout_here("run", path, "--runs", tmp_path / "runs", code=2).stderr
    assert not (tmp_path / "runs").exists()
