"""A real campaign of two searches through Ray, killed between opening the test classes and scoring them."""

import csv
import json
from pathlib import Path

import pytest
from commands import holdout, holdout_here, kill_when, plain, stored, summary, write_search
from conftest import draw_folder, small_search
from mlflow_rows import assert_mlflow_equals_the_studies
from optuna.trial import TrialState

NAMES = ("lot-6", "lot-8")


class Place:
    """The folders of one campaign."""

    def __init__(self, path: Path) -> None:
        self.runs = path / "runs"
        base = small_search(draw_folder(path / "images"), losses=["pnp"], search={"trials": 2})
        base["training"]["epochs"] = 2
        del base["name"]
        self.content = {
            "name": "lot",
            "study": "sizes of the embedding",
            "base": base,
            "vary": {"size": {"6": {"model.embedding_dim": 6}, "8": {"model.embedding_dim": 8}}},
            "table": {"rows": ["size"], "metrics": ["validation", "recall_at_1"]},
        }
        self.file = write_search(path / "lot.yaml", self.content)
        self.command = ("campaign", self.file, "--runs", self.runs)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A campaign that was killed at its worst moment and went on; the tests below look at what it left."""
    place = Place(tmp_path_factory.mktemp("campaign"))
    kill_when((place.runs / "test_openings.jsonl").exists, *place.command)
    assert [file.name for file in (place.runs / "lot").iterdir()] == ["campaign.yaml"]
    done = holdout(*place.command)
    assert "this test set: 1 opening by 2 searches" in plain(done.stdout)
    return place


def test_nothing_is_lost_and_nothing_doubled(place: Place) -> None:
    for name in NAMES:
        assert sum(summary(place.runs, name)["losses"]["pnp"]["trials"].values()) == 2
        for course in ("pnp", "pnp@confirm", "pnp@final"):
            trials = stored(place.runs, name, course)
            assert {trial.state for trial in trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
            runs = [(trial.user_attrs.get("configuration"), trial.user_attrs["seed"]) for trial in trials]
            assert len(set(runs)) == len(runs)
        assert_mlflow_equals_the_studies(place.runs, name, ("pnp",), experiment_name="lot")


def test_the_test_was_opened_once_for_both(place: Place) -> None:
    (line,) = (place.runs / "test_openings.jsonl").read_text().splitlines()
    opening = json.loads(line)
    assert opening["search"] == "lot"
    assert set(opening["selections"]) == set(NAMES)
    for name in NAMES:
        (scored,) = json.loads((place.runs / name / "test.json").read_text())["openings"]
        assert scored["id"] == opening["id"]
        assert summary(place.runs, name)["test_opened"] == 1


def test_the_result_is_that_of_the_searches(place: Place) -> None:
    """Asked for again, it is printed at once."""
    result = json.loads(holdout_here(*place.command, "--json").stdout)
    assert result == json.loads((place.runs / "lot" / "campaign.json").read_text())
    assert result == json.loads(
        holdout_here("campaign", place.runs / "lot" / "campaign.yaml", "--runs", place.runs, "--json").stdout
    )
    assert len(result["cells"]) == 2 * 2 * 2
    for cell in result["cells"]:
        entry = summary(place.runs, f"lot-{cell['place']['size']}")["losses"]["pnp"]
        of_role = entry if cell["place"]["configuration"] == "chosen" else entry["default"]
        expected = of_role["confirmed"] if cell["place"]["metric"] == "validation" else of_role["test"]["recall_at_1"]
        assert cell["values"] == expected["values"]
        assert cell["published"] is None


def test_the_rows_are_compared_and_written_to_files(place: Place, tmp_path: Path) -> None:
    files = [tmp_path / f"lot{suffix}" for suffix in (".csv", ".md", ".tex")]
    outputs = [word for file in files for word in ("--output", str(file))]
    result = json.loads(holdout_here(*place.command, *outputs, "--json").stdout)
    (pair,) = result["pairs"]
    assert set(pair["names"]) == {"6", "8"}
    assert 0 < pair["p"] <= pair["p_holm"] <= 1
    records = list(csv.DictReader(files[0].read_text().splitlines()))
    assert [float(record["mean"]) for record in records] == [cell["mean"] for cell in result["cells"]]
    for file in files[1:]:
        assert "sizes of the embedding" in file.read_text()
    wrong = plain(holdout_here(*place.command, "--output", tmp_path / "lot.doc", code=2).stderr)
    assert "the file's suffix says its format" in wrong


def test_each_search_is_a_search(place: Place) -> None:
    shown = plain(holdout_here("compare", *NAMES, "--runs", place.runs).stdout)
    assert f"{', '.join(NAMES)}: losses, default and tuned" in shown
    listed = json.loads(holdout_here("status", "--runs", place.runs, "--json").stdout)
    assert {(entry["name"], entry["state"]) for entry in listed} == {(name, "tested") for name in NAMES}


def test_a_campaign_that_was_tested_does_not_grow(place: Place, tmp_path: Path) -> None:
    vary = {"size": {**place.content["vary"]["size"], "9": {"model.embedding_dim": 9}}}
    file = write_search(tmp_path / "lot.yaml", {**place.content, "vary": vary})
    said = plain(holdout_here("campaign", file, "--runs", place.runs, code=2).stderr)
    assert "lot-9: the test classes were opened for lot-6, lot-8" in said
    assert not (place.runs / "lot-9").exists()
