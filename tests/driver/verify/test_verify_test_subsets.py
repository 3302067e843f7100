"""A search on a data set with three test lists: every model is scored and verified on each list.

Shapes: N test images.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.commands import holdout_here
from support.kinds import OF_LISTS, Finished

from search.plan.runs import RunFolder
from search.report.pairs import class_scores
from search.selection.retrieval_file import FOLDER, RetrievalFile

LISTS = {"small": "test_list_800", "medium": "test_list_1600", "large": "test_list_2400"}


@pytest.fixture(scope="module")
def root(kinds: Callable[[str], Finished]) -> Path:
    return Path(kinds("test lists").content["dataset"]["root"])


@pytest.fixture(scope="module")
def runs(kinds: Callable[[str], Finished]) -> Path:
    """The runs folder of a finished search; every test restores it."""
    return kinds("test lists").runs


def vehicles_of(root: Path, name: str) -> set[str]:
    return {line.split()[1] for line in (root / "train_test_split" / f"{LISTS[name]}.txt").read_text().splitlines()}


def test_one_training_is_scored_on_three_lists(runs: Path, root: Path) -> None:
    """Compare with plain loops over the stored neighbours: the nearest one in the list decides."""
    (opening,) = json.loads((runs / "small" / "test.json").read_text())["openings"]
    assert len(opening["scores"]) == 2
    test = json.loads((runs / "small" / "split.json").read_text())["test"]
    folder = runs / "small" / "test" / opening["id"]
    for model in opening["scores"]:
        assert list(model["metrics"]) == OF_LISTS
        neighbours = RetrievalFile.read(folder / FOLDER / model["per_image"]).neighbours_QK
        with np.load(folder / model["per_image"]) as content:
            names = [test[label] for label in content["labels"]]
            kept = {name: content[name] for name in OF_LISTS if name in content.files}
        for subset in LISTS:
            within = [name in vehicles_of(root, subset) for name in names]
            assert sum(within) == {"small": 16, "medium": 32, "large": 48}[subset]
            hits = []
            for query, ranked in enumerate(neighbours):
                in_list = [row for row in ranked if within[row]]
                if within[query] and in_list:
                    hits.append((query, names[in_list[0]] == names[query]))
            assert len(hits) > 0.8 * sum(within), "eight neighbours are kept"
            if (name := f"recall_at_1-{subset}") in OF_LISTS:
                assert all(kept[name][query] == hit for query, hit in hits)
                assert np.isnan(kept[name]).tolist() == [not inside for inside in within]
                assert model["metrics"][name] == pytest.approx(np.nanmean(kept[name]))
        assert model["metrics"]["recall_at_1-large"] == model["metrics"]["recall_at_1"], "the large list has them all"
        assert model["metrics"]["recall_at_1-small"] >= model["metrics"]["recall_at_1"], "a smaller gallery is easier"


def test_a_subset_is_compared_on_its_classes(runs: Path) -> None:
    folder = RunFolder(runs, "small")
    counts = {
        metric: [entry.counts_C.tolist() for entry in class_scores(folder, metric)]
        for metric in ("map_at_r", "map_at_r-small")
    }
    assert counts == {"map_at_r": [[4] * 12] * 2, "map_at_r-small": [[4] * 4] * 2}
    for entry in class_scores(folder, "map_at_r-small"):
        assert np.isfinite(entry.sums_C).all()


@pytest.mark.parametrize("name", ["recall_at_1-small", "nmi-medium", "dists_intra-large"])
def test_another_value_is_found(runs: Path, name: str) -> None:
    path = runs / "small" / "test.json"
    before = path.read_text()
    content = json.loads(before)
    content["openings"][0]["scores"][0]["metrics"][name] += 0.25
    path.write_text(json.dumps(content))
    try:
        said = holdout_here("verify", "small", "--runs", runs, code=1)
    finally:
        path.write_text(before)
    assert name in said.stdout + said.stderr
