"""One name, one number: results drawn at random are the same wherever they are shown, and no verdict contradicts its
interval."""

import csv
import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.driving import train_side_by_side
from support.made_search import made_search

from search.driver.stages import confirm_stage, freeze, search_stage
from search.driver.synchronise import loss_run
from search.plan.runs import RunFolder
from search.plan.search import OpenedSearch
from search.plan.stored import StoredSearch, status_of, trial_rows
from search.report.comparison import compare_stored
from search.report.comparison_tables import as_csv, headline_tables, text_tables
from search.report.drawing import Plot
from search.report.formats import difference_interval, p_value, verdict
from search.report.results import Comparison, Pair
from search.report.sections.answer import answer, anytime_curves, outcome
from search.report.summary import write_summary
from search.stages import Role, Stage
from search.study.trial_queue import QueuedStage, TrialQueue

# The search and its confirmations, driven with drawn values; few params, so some are proposed more than once.


def stages_of(search: OpenedSearch) -> Iterator[QueuedStage]:
    yield search_stage(search)
    yield confirm_stage(search)


@pytest.mark.parametrize("chosen", [False, True])
def test_the_values_of_a_search_are_the_same_everywhere(opened: Callable[..., OpenedSearch], chosen: bool) -> None:
    search = opened(
        losses=["pnp"],
        space={"pnp": {"variant": "Ds", "temperature": [0.01, 0.02, 0.05, 0.1]}},
        search={"trials": 12, "sampler": "random"},
        training={"epochs": 8, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        selection={"finalists": 2, "seeds": 2},
    )
    stages = stages_of(search) if chosen else iter([search_stage(search)])
    generator = random.Random(0)
    train_side_by_side(TrialQueue(stages), 3, lambda job, epoch: round(generator.random(), 3))
    if chosen:
        freeze(search)
    summary = write_summary(search)
    folder, trials = search.plan.folder, search.trials("pnp", Stage.SEARCH)
    stored = StoredSearch(folder)
    comparison = compare_stored([folder])
    entry = summary.losses["pnp"]
    assert entry.best is not None
    assert len({str(trial.params) for trial in trials}) < len(trials), "no configuration was proposed twice"

    # the leading trial
    best = entry.best.value
    (status,) = [row for row in status_of(stored).studies if row.stage is Stage.SEARCH]
    assert best == status.best == max(trial.value for trial in trials if trial.state.name == "COMPLETE")
    assert best == entry.anytime[-1].value
    curves = anytime_curves([summary])
    assert curves is not None
    assert isinstance(curves.picture, Plot)
    assert curves.picture.figure["data"][-1]["y"][-1] == pytest.approx(best, rel=1e-4)

    # the search value of a row is the value of the trial that it names
    rows = {row.role: row for row in comparison.rows}
    listed = {row.number: row.value for row in trial_rows(trials)}
    for row in rows.values():
        if row.search_value is None:
            assert row.number is not None
            assert trials[row.number].state.name != "COMPLETE"
        else:
            assert row.search_value == listed[row.number]
    if not chosen:
        assert (rows[Role.TUNED].number, rows[Role.TUNED].search_value) == (entry.best.number, best)
    run = loss_run(comparison, "pnp")
    assert run.metrics.get("search/map_at_r") == rows[Role.TUNED].search_value
    assert run.metrics.get("default/search_map_at_r") == rows[Role.DEFAULT].search_value
    frame = comparison.to_frame().set_index("role")

    def role_of(role: str) -> str:
        """Return the role in the data frame, in which a chosen default is one line."""
        return "default" if rows[Role.TUNED].number == 0 else role

    for record_ in csv.DictReader(io.StringIO(as_csv(comparison))):
        if record_["stage"] == "search":
            assert float(record_["mean"]) == rows[Role(record_["role"])].search_value
            assert float(record_["mean"]) == frame.loc[role_of(record_["role"]), "search_value"]

    # confirmed values
    if chosen:
        confirmed = rows[Role.TUNED].confirmed
        assert confirmed is not None
        table = text_tables(comparison)[1]
        cell = next(row for row in table.rows if row[1] == rows[Role.TUNED].name)[3]
        assert cell == f"{confirmed.mean:.4f} ± {confirmed.std:.4f}"
        assert run.metrics["confirmed/map_at_r"] == confirmed.mean == frame.loc[role_of("tuned"), "confirmed"]
    headline = headline_tables(comparison)[1 if chosen else 0]
    value = rows[Role.TUNED].confirmed.mean if chosen else best
    assert any(f"{value:.4f}" in cell for row in headline.rows for cell in row)
    assert answer(comparison, [folder]).results[0] == headline


# The test: scores drawn at random, with differences around what can be detected.


def drawn(runs: Path, draw: int) -> Comparison:
    generator = np.random.default_rng(draw)
    spread = generator.choice([0.005, 0.02, 0.1])
    losses = ["pnp", "mpa", "triplet", "margin"][: generator.integers(1, 5)]
    means = {loss: tuple(0.5 + generator.normal(0, spread, 2)) for loss in losses}
    made_search(runs, "drawn", means, seeds=tuple(range(11, 11 + int(generator.integers(2, 5)))))
    return compare_stored([RunFolder(runs, "drawn")])


@pytest.mark.parametrize("draw", range(3))
def test_the_differences_are_the_same_everywhere(tmp_path: Path, draw: int) -> None:
    comparison = drawn(tmp_path, draw)
    rows = {row.key: row for row in comparison.rows}
    whole = {row[0]: row[1:] for row in text_tables(comparison)[2].rows}
    gains = [cell for row in headline_tables(comparison)[1].rows for cell in row if "[" in cell]
    shown = outcome(comparison, [RunFolder(tmp_path, "drawn")])
    assert shown.results[0].rows == text_tables(comparison)[1].rows
    assert shown.figures[0].table == text_tables(comparison)[2]
    assert len(comparison.pairs) == len(whole)
    records = [entry for entry in csv.DictReader(io.StringIO(as_csv(comparison))) if entry["against_loss"]]
    for pair, cells, found in zip(comparison.pairs, whole.values(), records, strict=True):
        first, second = rows[pair.first].test, rows[pair.second].test
        assert first is not None
        assert second is not None
        assert pair.difference == pytest.approx(first["map_at_r"].mean - second["map_at_r"].mean, abs=1e-12)
        low, high = pair.ci95
        assert pair.differ == (not low <= 0 <= high) == (pair.p_corrected <= 0.05), "a verdict contradicts its interval"
        assert cells == (
            f"{100 * pair.difference:+.1f}", difference_interval(pair), p_value(pair.p), p_value(pair.p_corrected),
            verdict(pair),
        )  # fmt: skip
        assert [float(end) for end in cells[1].strip("[]").split(", ")] == pytest.approx(
            [100 * low, 100 * high], abs=0.051
        )
        assert bool(cells[-1]) == (not contains_zero(cells[1])) == (not exceeds_level(cells[3]))
        assert (float(found["ci95_low"]), float(found["ci95_high"])) == pair.ci95
        assert float(found["p_corrected"]) == pair.p_corrected
        tag = loss_run(comparison, pair.first.loss).tags[tag_of(pair)]
        assert tag.startswith(f"{cells[0]} points {cells[1]}, p {cells[3]} ")
        assert tag.endswith(verdict(pair) or "no significant difference")
    assert gains == [f"{cells[0]} {cells[1]}" for name, cells in whole.items() if "its default" in name]
    (of_recommended,) = (
        pair
        for pair in comparison.pairs
        if pair.first[1:] == ("pnp", "tuned") and pair.second[1:] == ("pnp", "default")
    )
    cells = [*whole.values()][comparison.pairs.index(of_recommended)]
    word = "not shown" if not of_recommended.differ else "yes" if of_recommended.difference > 0 else "no"
    corrected = f"(corrected for {len(records)} pair{'s' * (len(records) > 1)})"
    assert comparison.answers[0].better_than_default == (
        f"Better than its default: {word}, {cells[0]} points {cells[1]} by map_at_r on the 30 test classes {corrected}."
    )


def contains_zero(shown: str) -> bool:
    low, high = map(float, shown.strip("[]").split(", "))
    return low <= 0 <= high


def exceeds_level(shown: str) -> bool:
    return float(shown.removeprefix("< ")) > 0.05


def tag_of(pair: Pair) -> str:
    return f"holdout.pair.{pair.first.loss}.{pair.first.role}.{pair.second.loss}.{pair.second.role}"
