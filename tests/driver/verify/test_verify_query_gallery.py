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
from support.kinds import OF_QUERIES, Finished, by_group, write_manifest
from support.tampered import Copied

from search.plan.runs import RunFolder
from search.report.pairs import class_scores
from search.selection.retrieval_file import FOLDER, RetrievalFile

KIND = "groups, queries and a gallery"


@pytest.fixture(scope="module")
def runs(kinds: Callable[[str], Finished]) -> Path:
    return kinds(KIND).runs


@pytest.fixture(scope="module")
def manifest(kinds: Callable[[str], Finished]) -> Path:
    return Path(kinds(KIND).content["dataset"]["file"])


def test_queries_are_scored_against_the_gallery(runs: Path, manifest: Path) -> None:
    """Compare with plain loops over the stored neighbours."""
    row_of = {row["path"]: row for row in csv.DictReader(manifest.read_text().splitlines())}
    (opening,) = json.loads((runs / "small" / "test.json").read_text())["openings"]
    folder = runs / "small" / "test" / opening["id"]
    for model in opening["scores"]:
        assert list(model["metrics"]) == OF_QUERIES
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
        for name in OF_QUERIES[:-1]:
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
    write_manifest(manifest, rows)
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
def test_metrics_that_cannot_be_computed_are_refused(tmp_path: Path, metrics: dict[str, Any], said: str) -> None:
    file = tmp_path / "small.json"
    file.write_text(json.dumps(by_group(tmp_path, metrics=metrics)))
    assert said in plain(holdout_here("run", file, "--runs", tmp_path / "runs", code=2).stderr)
    assert not (tmp_path / "runs").exists()
