"""The picture of all losses: best values so far and confirmed values, recomputed from the studies."""

import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
from optuna.trial import FrozenTrial, TrialState
from support.finished_search import run_here
from support.small_search import small_search

from search.plan.search import OpenedSearch
from search.plan.stored import StoredSearch
from search.report.drawing import Figure, Plot
from search.report.sections.anytime_curves import anytime_curves
from search.report.summary import write_summary
from search.stages import Stage
from search.trials import epochs_of


@pytest.fixture(scope="module")
def search(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedSearch]:
    """A search of two losses with confirmed values; read-only."""
    content = small_search(
        image_folder,
        dataset={"name": "glyphs", "num_classes": 30, "images_per_class": 6, "size": 20},
        split={"ratio": 0.5},
        search={"trials": 4},
        selection={"finalists": 2, "seeds": 2},
        stages=["search", "select"],
    )
    (search,) = run_here(tmp_path_factory.mktemp("anytime") / "runs", [content])
    yield search
    search.close()


@pytest.fixture(scope="module")
def figure(search: OpenedSearch) -> Figure:
    found = anytime_curves([StoredSearch(search.plan.folder)], [write_summary(search)])
    assert found is not None
    return found


def traces(figure: Figure, *, confirmed: bool) -> dict[str, dict[str, Any]]:
    """Return the traces of the lines or of the confirmed means, by loss."""
    assert isinstance(figure.picture, Plot)
    found = [trace for trace in figure.picture.figure["data"] if ("error_y" in trace) == confirmed]
    return {trace["meta"]["loss"]: trace for trace in found}


def epochs(trials: list[FrozenTrial]) -> list[tuple[int, float]]:
    """Return trial and value of every epoch in the order of their ends."""
    every = [
        (record["end"], trial.number, record["metrics"]["map_at_r"])
        for trial in trials
        for key, record in trial.user_attrs.items()
        if key.startswith("epoch:")
    ]
    return [(number, value) for _, number, value in sorted(every)]


def test_lines_are_the_best_values_so_far(search: OpenedSearch, figure: Figure) -> None:
    lines = traces(figure, confirmed=False)
    assert tuple(lines) == tuple(search.config.loss_names)
    for loss, line in lines.items():
        ended = epochs(search.trials(loss, Stage.SEARCH))
        best, steps = -math.inf, []
        for place, (_, value) in enumerate(ended, start=1):
            if value > best:
                best = value
                steps.append((place, value))
        assert line["x"] == [*(place for place, _ in steps), len(ended)]
        assert line["y"] == pytest.approx([*(value for _, value in steps), best], rel=1e-4)


def test_marks_are_the_means_of_fresh_seeds_with_their_intervals(search: OpenedSearch, figure: Figure) -> None:
    for loss, marks in traces(figure, confirmed=True).items():
        last = {number: place for place, (number, _) in enumerate(epochs(search.trials(loss, Stage.SEARCH)), 1)}
        classes: dict[int, dict[int, list[float]]] = {}
        for trial in search.trials(loss, Stage.SELECT):
            assert trial.state == TrialState.COMPLETE
            best = max(epochs_of(trial), key=lambda record: record["metrics"]["map_at_r"])
            of_seeds = classes.setdefault(trial.user_attrs["source_trial"], {})
            of_seeds.setdefault(trial.user_attrs["seed"], []).extend(best["classes"].values())
        count = sum(map(len, search.plan.split.halves))
        assert {len(values) for of_seeds in classes.values() for values in of_seeds.values()} == {count}
        seeds = {number: [statistics.fmean(values) for values in found.values()] for number, found in classes.items()}
        numbers = sorted(seeds)
        assert marks["x"] == [last[number] for number in numbers]
        means = [statistics.fmean(seeds[number]) for number in numbers]
        assert marks["y"] == pytest.approx(means, rel=1e-4)
        for place, (number, mean) in enumerate(zip(numbers, means, strict=True)):
            values = seeds[number]
            if len({*values}) == 1:  # one seed, or seeds without a difference
                assert marks["error_y"]["array"][place] == marks["error_y"]["arrayminus"][place] == 0
                continue
            half = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values) / (mean * (1 - mean))
            low, high = (1 / (1 + math.exp(-math.log(mean / (1 - mean)) - sign * half)) for sign in (-1, 1))
            assert marks["error_y"]["array"][place] == pytest.approx(high - mean, rel=1e-3)
            assert marks["error_y"]["arrayminus"][place] == pytest.approx(mean - low, rel=1e-3)


def test_it_is_there_from_the_first_value_on(image_folder: Path, tmp_path: Path) -> None:
    content = small_search(image_folder, losses=["pnp"], search={"trials": 2})
    for trained, is_there in ((0, False), (2, True)):
        (search,) = run_here(tmp_path / str(trained), [content], epochs=trained)
        found = anytime_curves([StoredSearch(search.plan.folder)], [write_summary(search)])
        search.close()
        assert (found is not None) == is_there
    assert found is not None
    assert not traces(found, confirmed=True)
    assert found.finding.startswith("pnp has the highest value so far, ")
