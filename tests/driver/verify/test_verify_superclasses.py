"""A search with superclass metrics, from its trials to its test, and ``holdout verify`` on it."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score
from support.commands import holdout_here
from support.finished_search import finish
from support.small_search import small_search
from support.trees import make_sop

METRICS = ["nmi_super", "f1_super"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a search on products of two superclasses, with a superclass metric as objective."""
    root = make_sop(tmp_path_factory.mktemp("sop"), classes_per_half=8, images_per_class=6)
    runs = tmp_path_factory.mktemp("finished") / "runs"
    content = small_search(
        root,
        dataset={"name": "sop", "root": str(root), "subset": True},
        losses=["pnp"],
        split={"ratio": 0.5},
        training={"epochs": 2, "batch_size": 12, "images_per_class": 3, "image_size": 16},
        search={"trials": 1, "objective": "nmi_super"},
        metrics={"validation": METRICS, "test": METRICS},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 2},
    )
    return finish(runs, content)


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


def test_it_passes_and_retrains(runs: Path) -> None:
    lines = holdout_here("verify", "small", "--runs", runs, "--retrain", "pnp:0").stdout.splitlines()
    assert all(line.startswith("ok  ") for line in lines), lines


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
