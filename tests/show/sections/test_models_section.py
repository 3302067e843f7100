"""The section on the models, of searches that were really trained and tested."""

import io
import json
import re
import shutil
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.finished_search import finish
from support.journals import rewrite, without_openings
from support.made_search import compared
from support.small_search import GLYPHS

from search.records.records import stored_search
from search.show.drawing import Plot, Section, ShownQuery
from search.show.sections.models import models_section
from search.stages import Role


def section_of(runs: Path) -> Section:
    return models_section(stored_search(runs, "small"))


@pytest.fixture(scope="module")
def section(tested: Path) -> Section:
    return section_of(tested)


def queries_of(section: Section, name: str) -> tuple[ShownQuery, ...]:
    (picture,) = [entry.picture for entry in section.figures if entry.name == name]
    assert isinstance(picture, tuple)
    return picture


def scored(runs: Path) -> tuple[Path, list[dict[str, Any]]]:
    (opening,) = json.loads((runs / "small/test.json").read_text())["openings"]
    return runs / "small/test" / opening["id"], opening["scores"]


def per_image(runs: Path, loss: str, number: int | None) -> list[dict[str, np.ndarray]]:
    folder, models = scored(runs)
    wanted = [model for model in models if (model["loss"], model["source_trial"]) == (loss, number)]
    return [dict(np.load(folder / model["per_image"])) for model in wanted]


def test_every_figure_can_be_shown(tested: Path, section: Section) -> None:
    assert section_of(tested) == section, "the same records make the same figures"
    names = [entry.name for entry in section.figures]
    assert len(set(names)) == len(names)
    assert {"gallery-best", "gallery-worst", "gallery-median"} < {*names}
    assert sum(name.startswith("map-") for name in names) == 2, "two losses"
    for entry in section.figures:
        assert re.fullmatch(r"[a-z0-9-]+", entry.name)
        assert re.search(r"\d", entry.finding), entry.finding
        assert "nan" not in entry.finding
        match entry.picture:
            case Plot(content):
                assert not re.findall(r"<(?!br>|/?extra>)", json.dumps(content, allow_nan=False)), "names are text"
            case queries:
                for query in queries:
                    for photograph in (query.photograph, *chain.from_iterable(query.neighbours.values())):
                        with Image.open(io.BytesIO(photograph.content or b"")) as image:
                            assert image.format == "WEBP"
                            assert min(image.size) <= 64


def test_a_gallery_counts_the_correct_images(tested: Path, section: Section) -> None:
    """Their number is the test metric precision_at_8, computed independently."""
    comparison = compared(tested, "small")
    rows = {f"{row.loss}, {row.role}": per_image(tested, row.loss, row.number)[0] for row in comparison.rows}
    for entry in section.figures:
        if entry.name.startswith("gallery-"):
            for query in queries_of(section, entry.name):
                for label, images in query.neighbours.items():
                    at = rows[label]["keys"].tolist().index(query.key)
                    assert sum(image.right is True for image in images) == round(8 * rows[label]["precision_at_8"][at])
                    assert all((image.name == query.photograph.name) == image.right for image in images)
                    assert len(images) == 8


def test_class_values_are_the_means_of_their_images(tested: Path, section: Section) -> None:
    comparison = compared(tested, "small")
    names = json.loads((tested / "small" / "split.json").read_text())["test"]
    expected: dict[str, dict[str, float]] = {}
    for row in comparison.rows:
        models = per_image(tested, row.loss, row.number) if row.role is Role.TUNED else []
        for label, name in enumerate(names):
            of_class = [float(model["map_at_r"][model["labels"] == label].mean()) for model in models]
            if of_class:
                expected.setdefault(name, {})[row.loss] = sum(of_class) / len(of_class)
    (table,) = section.tables
    assert table.header[2:4] == ("proxy_anchor", "pnp")
    for name, mean, *values, _ in table.rows:
        assert values == [f"{100 * expected[name][loss]:.2f}" for loss in table.header[2:4]]
        assert float(mean) == pytest.approx(100 * np.mean([*expected[name].values()]), abs=0.01)
    means = sorted(100 * np.mean([*found.values()]) for found in expected.values())
    assert [float(row[1]) for row in table.rows] == pytest.approx(means, abs=0.01)
    assert table.rows[0][0] == "class-15 alone", "a single image cannot be found"


def test_confusions_are_the_wrong_nearest_neighbours(tested: Path, section: Section) -> None:
    folder, models = scored(tested)
    names = json.loads((tested / "small" / "split.json").read_text())["test"]
    tuned = {(row.loss, row.number) for row in compared(tested, "small").rows if row.role is Role.TUNED}
    taken: Counter[tuple[str, str]] = Counter()
    asked: Counter[str] = Counter()
    for model in models:
        if (model["loss"], model["source_trial"]) in tuned:
            labels = np.load(folder / model["per_image"])["labels"]
            nearest = np.load(folder / "retrieval" / model["per_image"])["neighbours_QK"][:, 0]
            for query, found in enumerate(nearest.tolist()):
                asked[names[labels[query]]] += 1
                if labels[query] != labels[found]:
                    taken[names[labels[query]], names[labels[found]]] += 1
    for name, *_, said in section.tables[0].rows:
        counts = sorted((count for (own, _), count in taken.items() if own == name), reverse=True)[:3]
        assert [int(part) for part in re.findall(r" (\d+)%", said)] == [round(100 * n / asked[name]) for n in counts]


def test_a_sealed_test_is_reported(copied: Path) -> None:
    for path in ("small/test.json", "small/summary.json", "test_openings.jsonl"):
        (copied / path).unlink()
    shutil.rmtree(copied / "small" / "test")
    rewrite(copied / "small" / "study.journal", without_openings)
    section = section_of(copied)
    assert not section.figures
    assert "sealed" in section.pending[0]
    assert not section.missing, "nothing is wrong"


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ("retrieval/proxy_anchor@final-0.npz", set()),
        ("proxy_anchor@final-1.npz", {"gallery-best", "map-tsne-2"}),
        ("thumbnails.npz", {"map-tsne-2", "The hardest of 8 test classes"}),
    ],
)
def test_a_missing_file_is_reported(copied: Path, gone: str, left: set[str]) -> None:
    folder, _ = scored(copied)
    (folder / gone).unlink()
    section = section_of(copied)
    assert [sentence for sentence in section.missing if gone in sentence and "removed" in sentence], section.missing
    names = {*(entry.name for entry in section.figures), *(table.title for table in section.tables)}
    assert left <= names
    assert left or not names


def test_without_a_metric_per_image_there_are_only_maps(tmp_path: Path) -> None:
    metrics = {"validation": ["nmi"], "test": ["nmi"]}
    content = {**GLYPHS, "name": "small", "losses": ["pnp"], "final": {"seeds": 1}, "metrics": metrics}
    finish(tmp_path / "runs", {**content, "search": {"trials": 1, "objective": "nmi"}})
    section = section_of(tmp_path / "runs")
    names = {entry.name for entry in section.figures}
    assert {name.partition("-")[0] for name in names} == {"map"}
    assert sum("metrics.test" in sentence for sentence in section.remarks) == 2
    assert not section.missing, "nothing is wrong"
