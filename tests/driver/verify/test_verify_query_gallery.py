"""A search on a manifest with groups, official queries and gallery, and cameras, from its plan to its verification.

Shapes: N test images.
"""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import holdout_here, plain
from support.finished_search import finish
from support.small_search import draw_folder, small_search
from support.tampered import Copied

from search.plan.runs import RunFolder
from search.report.pairs import class_scores
from search.selection.retrieval_file import FOLDER, RetrievalFile

METRICS = ["recall_at_1", "map_at_r", "r_precision", "nmi"]
DISTRACTORS = "class-15"
"""A test class that is in the gallery only."""


def rows_of(root: Path) -> list[dict[str, str]]:
    """Return the manifest's rows: classes 0 and 1 share a group, the last eight classes are query and gallery."""
    rows = []
    for folder in sorted(root.iterdir()):
        for at, path in enumerate(sorted(folder.iterdir())):
            number = int(folder.name[-2:])
            part = "train" if number < 8 else "gallery" if folder.name == DISTRACTORS or at % 3 else "query"
            group = "shop" if number < 2 and at == 0 else str(path)
            name = str(path.relative_to(root))
            rows.append({"path": name, "class": folder.name, "group": group, "part": part, "camera": str(at % 2)})
    return rows


def write(file: Path, rows: list[dict[str, str]]) -> Path:
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return file


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = draw_folder(tmp_path_factory.mktemp("photographs") / "images", images=7)
    return write(root.parent / "x.csv", [{**row, "path": f"images/{row['path']}"} for row in rows_of(root)])


def content(manifest: Path, **changes: Any) -> dict[str, Any]:
    return small_search(
        manifest.parent,
        **{
            "dataset": {"name": "manifest", "file": str(manifest), "ignore_same_camera": True},
            "losses": ["pnp"],
            "training": {"epochs": 1, "batch_size": 12, "images_per_class": 3, "image_size": 16},
            "search": {"trials": 1},
            "metrics": {"validation": ["recall_at_1", "map_at_r"], "test": METRICS},
            "selection": {"finalists": 1, "seeds": 1},
            "final": {"seeds": 2},
            **changes,
        },
    )


@pytest.fixture(scope="module")
def runs(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished search."""
    runs = tmp_path_factory.mktemp("finished") / "runs"
    return finish(runs, content(manifest))


def test_queries_are_scored_against_the_gallery(runs: Path, manifest: Path) -> None:
    """Compare with plain loops over the stored neighbours."""
    row_of = {row["path"]: row for row in csv.DictReader(manifest.read_text().splitlines())}
    (opening,) = json.loads((runs / "small" / "test.json").read_text())["openings"]
    folder = runs / "small" / "test" / opening["id"]
    for model in opening["scores"]:
        assert list(model["metrics"]) == METRICS
        retrieval = RetrievalFile.read(folder / FOLDER / model["per_image"])
        with np.load(folder / model["per_image"]) as stored:
            kept = {name: stored[name] for name in stored.files}
        rows = [row_of[key] for key in kept["keys"].tolist()]
        queries = [at for at, row in enumerate(rows) if row["part"] == "query"]
        assert retrieval.queries_Q.tolist() == queries
        for query, near in zip(queries, retrieval.neighbours_QK.tolist(), strict=True):
            own = rows[query]
            gallery = [
                at for at, row in enumerate(rows)
                if row["part"] == "gallery" and (row["class"], row["camera"]) != (own["class"], own["camera"])
            ]  # fmt: skip
            assert set(near) <= set(gallery)
            relevant = sum(rows[at]["class"] == own["class"] for at in gallery)
            hits = [rows[at]["class"] == own["class"] for at in near]
            assert kept["recall_at_1"][query] == hits[0]
            assert kept["r_precision"][query] == pytest.approx(sum(hits[:relevant]) / relevant)
            average = sum(sum(hits[: at + 1]) / (at + 1) for at in range(relevant) if hits[at]) / relevant
            assert kept["map_at_r"][query] == pytest.approx(average)
        for name in METRICS[:-1]:
            assert np.flatnonzero(~np.isnan(kept[name])).tolist() == queries
            assert model["metrics"][name] == pytest.approx(np.nanmean(kept[name]))


def test_a_class_without_queries_is_in_no_comparison_by_class(runs: Path) -> None:
    for entry in class_scores(RunFolder(runs, "small"), "map_at_r"):
        assert entry.labels_C.tolist() == list(range(7))
        assert entry.counts_C.tolist() == [3] * 7


def test_tables_and_the_report_say_so(runs: Path, tmp_path: Path) -> None:
    shown = plain(holdout_here("compare", "small", "--runs", runs).stdout)
    assert "the test's queries are ranked against its gallery only; a query ignores the images of its class" in shown
    split = json.loads((runs / "small" / "split.json").read_text())
    assert split["joined"] == [["class-00", "class-01"]]
    assert set(split["marks"]) == {"groups", "parts", "cameras"}
    holdout_here("report", "small", "--runs", runs, "--output", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The hardest class is class-" in page
    assert "Best queries" in page


def test_it_is_recomputed(runs: Path) -> None:
    lines = holdout_here("verify", "small", "--runs", runs).stdout.splitlines()
    assert all(line.startswith("ok  ") for line in lines), lines


def refusal(runs: Path) -> str:
    return str(holdout_here("verify", "small", "--runs", runs, code=1).stderr)


def other_part(rows: list[dict[str, str]]) -> None:
    row = next(row for row in rows if row["part"] == "query")
    row["part"] = "gallery"


@pytest.mark.parametrize(("change", "said"), [
    (other_part, "split.json marks.parts"),
    (lambda rows: rows[-1].update(camera="7"), "split.json marks.cameras"),
    (lambda rows: rows[0].update(group="alone"), "split.json"),
])  # fmt: skip
def test_another_part_camera_or_group_is_found(
    runs: Path, manifest: Path, change: Callable[[list[dict[str, str]]], None], said: str
) -> None:
    before = manifest.read_text()
    rows = [*csv.DictReader(before.splitlines())]
    change(rows)
    write(manifest, rows)
    try:
        assert said in refusal(runs)
    finally:
        manifest.write_text(before)


def another_neighbour(arrays: dict[str, Any]) -> None:
    arrays["neighbours_QK"][0, 0] = arrays["queries_Q"][1]


def test_scores_of_other_queries_are_found(runs: Path, tmp_path: Path) -> None:
    copied = Copied(runs, tmp_path / "runs")
    copied.arrays(another_neighbour, copied.rankings[0])
    assert ".npz was changed: its digest is" in refusal(copied.runs)
    copied.arrays(lambda arrays: arrays["map_at_r"].__setitem__(0, np.nan))
    assert "map_at_r queries" in refusal(copied.runs)


@pytest.mark.parametrize(("metrics", "said"), [
    ({"test": ["recall_at_40"]}, "k = 40 needs a gallery of 40 images and that of the 8 test classes has 35"),
])  # fmt: skip
def test_metrics_that_cannot_be_computed_are_refused(
    manifest: Path, tmp_path: Path, metrics: dict[str, Any], said: str
) -> None:
    file = tmp_path / "small.json"
    file.write_text(json.dumps(content(manifest, metrics=metrics)))
    assert said in plain(holdout_here("run", file, "--runs", tmp_path / "runs", code=2).stderr)
    assert not (tmp_path / "runs").exists()
