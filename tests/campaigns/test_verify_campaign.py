"""``holdout verify`` on a finished campaign with a cross-validated search, and changes to the campaign's records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, plain
from support.finished_search import campaign_here
from support.tampered import Copied

BASE: dict[str, Any] = {
    "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 6, "size": 20},
    "model": {"embedding_dim": 8},
    "training": {"epochs": 2, "batch_size": 10, "images_per_class": 5, "image_size": 16},
    "losses": ["pnp"],
    "search": {"trials": 2},
    "selection": {"finalists": 1, "seeds": 2},
    "final": {"seeds": 2},
}
CONTENT: dict[str, Any] = {
    "name": "lot",
    "study": "one part or folds",
    "base": BASE,
    "vary": {"split": {"fixed": {}, "folds": {"split.folds": 2}, "all": {"final.train_on": "all"}}},
    "table": {"rows": ["split"], "metrics": ["validation", "recall_at_1"]},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished campaign; tests must not change it."""
    runs: Path = tmp_path_factory.mktemp("campaign") / "runs"
    with campaign_here(runs, CONTENT):
        return runs


def verified(runs: Path, *more: str, code: int = 0) -> str:
    done = holdout_here("verify", "lot", "--runs", runs, *more, code=code)
    return done.stdout + plain(done.stderr)


def test_an_untouched_campaign_passes(finished: Path) -> None:
    lines = verified(finished).splitlines()
    assert all(line.startswith("ok  ") for line in lines), lines
    for name in ("lot-fixed", "lot-folds", "lot-all"):
        assert f"ok  {name}: its file, from campaign.yaml" in lines
    assert lines[-1].startswith("ok  campaign.json")


def _cell(content: dict[str, Any]) -> None:
    content["cells"][0]["mean"] = 0.99


def _chosen(content: dict[str, Any]) -> None:
    content["chosen"]["lot-folds"]["pnp"]["variant"] = "another"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c.json("campaign.json", _cell), "campaign.json cells.0.mean"),
        (lambda c: c.json("campaign.json", _chosen), "campaign.json chosen.lot-folds"),
        (lambda c: c.json("campaign.json", lambda found: found["openings"].clear()), "campaign.json openings"),
        (lambda c: (c.path / "campaign.json").unlink(), "campaign.json is missing, and all searches of lot are done"),
        (lambda c: c.text("campaign.yaml", "trials: 2", "trials: 3"), ""),
        (lambda c: c.text("campaign.yaml", "split.folds: 2", "split.folds: 3"), "lot-folds search.yaml split.folds"),
    ],
    ids=["cell", "choice", "openings", "result", "trials", "folds"],
)
def test_one_change_is_found(finished: Path, tmp_path: Path, change: Callable[[Copied], object], says: str) -> None:
    copied = Copied(finished, tmp_path / "runs", "lot")
    change(copied)
    said = verified(copied.runs, code=1 if says else 0)
    assert says in said.splitlines()[-1], said


def test_a_value_of_a_fold_is_found(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs", "lot-folds")
    copied.attribute(
        "pnp", 0, "epoch:002:000001", lambda record: {**record, "metrics": dict.fromkeys(record["metrics"], 0.5)}
    )
    assert "lot-folds/pnp trial 0" in verified(copied.runs, code=1).splitlines()[-1]


def test_a_missing_member_is_listed(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs", "lot")
    (copied.runs / "lot-all").rename(tmp_path / "gone")
    assert "--  lot-all: not there yet" in verified(copied.runs)


def test_a_campaign_cannot_be_retrained(finished: Path) -> None:
    assert "--retrain: lot is a campaign" in verified(finished, "--retrain", "pnp:0", code=2)


def test_a_line_of_the_ledger_that_names_a_member_is_found(finished: Path, tmp_path: Path) -> None:
    copied = Copied(finished, tmp_path / "runs", "lot")
    path = copied.runs / "test_openings.jsonl"
    first, *rest = path.read_text().splitlines()
    line = json.loads(first)
    del line["selections"]["lot-folds"]
    path.write_text("\n".join((json.dumps(line), *rest)) + "\n")
    assert "Line 1 of the ledger of test openings" in verified(copied.runs, code=1).splitlines()[-1]
