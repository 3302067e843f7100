"""A search with superclass metrics, from its trials to its test, and ``holdout verify`` on it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score
from support.commands import holdout_here
from support.kinds import Finished


@pytest.fixture(scope="module")
def runs(kinds: Callable[[str], Finished]) -> Path:
    return kinds("superclasses").runs


def test_scores_agree_with_scikit_learn(runs: Path) -> None:
    (opening,) = json.loads((runs / "small" / "test.json").read_text())["openings"]
    assert len(opening["scores"]) == 2
    for model in opening["scores"]:
        with np.load(runs / "small" / "test" / opening["id"] / model["per_image"]) as content:
            folders = [key.partition("_final/")[0] for key in content["keys"].tolist()]  # one folder per superclass
            clusters = content["clusters_super"]
        assert len(set(folders)) == len(set(clusters.tolist())) == 2
        assert model["metrics"]["nmi_super"] == pytest.approx(normalized_mutual_info_score(folders, clusters))
        assert 0 <= model["in_small_galleries"] <= 1


def test_changed_superclasses_are_found(runs: Path) -> None:
    config = (runs / "small" / "search.yaml").read_text()
    root = Path(next(line.partition("root: ")[2] for line in config.splitlines() if "root: /" in line))
    path = root / "Ebay_test.txt"
    before = path.read_text()
    heading, *lines = before.splitlines()
    first = lines[0].split()[1]
    moved = [
        f"{i} {product} {9 if product == first else kind} {key}" for i, product, kind, key in map(str.split, lines)
    ]
    path.write_text("\n".join([heading, *moved]))
    try:
        said = holdout_here("verify", "small", "--runs", runs, code=1)
    finally:
        path.write_text(before)
    assert "superclass" in said.stdout + said.stderr
