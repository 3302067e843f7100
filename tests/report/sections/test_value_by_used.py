"""The figure of values by pairs or triplets used, compared with plain loops over the records."""

import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest
from support.driving import only, record

from search.driver.stages import search_stage
from search.plan.search import OpenedSearch
from search.plan.stored import StoredSearch
from search.report.drawing import Figure, Plot
from search.report.sections.effort import effort
from search.report.sections.value_by_used import value_by_used
from search.report.summary import write_summary
from search.stages import Stage
from search.study.trial_queue import TrialQueue

Opened = Callable[..., OpenedSearch]
EPOCHS = 4
TRAINING = {"epochs": EPOCHS, "batch_size": 20}
USED = {
    "triplet": lambda number, epoch: {"triplets": 50 - number - epoch},
    "topk_precision": lambda number, epoch: {"triplets": 20 - epoch},
    "contrastive": lambda number, epoch: {"pairs": 190},
}
"""Units used in an epoch of a trial, by loss; other losses do not count any."""


def value_of(loss: str, number: int, epoch: int) -> float:
    """Return a value that rises with the trial's number, so that the last is the best, and falls in the last epoch."""
    start = {"triplet": 0.3, "topk_precision": 0.5, "contrastive": 0.2}.get(loss, 0.4)
    return start + number / 100 + (epoch if epoch < EPOCHS else 1) / 50


def trained(search: OpenedSearch) -> OpenedSearch:
    search.begin_session(0.0, 1)
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        for epoch in range(1, EPOCHS + 1):
            used = {"used": USED[job.loss](job.number, epoch)} if job.loss in USED else {}
            found = {**record(epoch, value_of(job.loss, job.number, epoch)), **used}
            found["metrics"] = {**found["metrics"], "recall_at_1": 0.9 - epoch / 10}
            if not queue.on_trial_result(job, {"records": [found], "finished": epoch == EPOCHS}):
                break
    return search


def figure_of(*searches: OpenedSearch) -> Figure | None:
    return value_by_used([StoredSearch(search.plan.folder) for search in searches], list(map(write_summary, searches)))


def plot_of(figure: Figure | None) -> dict[str, Any]:
    assert figure is not None
    assert isinstance(figure.picture, Plot)
    go.Figure(figure.picture.figure)
    plot: dict[str, Any] = json.loads(json.dumps(figure.picture.figure, allow_nan=False))
    return plot


def button(plot: dict[str, Any], menu: int, label: str) -> list[Any]:
    (found,) = [entry for entry in plot["layout"]["updatemenus"][menu]["buttons"] if entry["label"] == label]
    args: list[Any] = found["args"]
    return args


@pytest.fixture
def search(opened: Opened) -> OpenedSearch:
    losses = ["triplet", "topk_precision", "contrastive", "proxy_anchor"]
    return trained(opened(losses=losses, search={"trials": 2, "pruner": "none"}, training=TRAINING))


def test_curves_are_the_records_of_the_default_and_the_best(search: OpenedSearch) -> None:
    plot = plot_of(figure_of(search))
    labels = [menu["label"] for menu in plot["layout"]["updatemenus"][0]["buttons"]]
    assert labels == ["iterations", "triplets", "pairs", "epochs"]
    by_unit = {label: button(plot, 0, label) for label in labels}
    other_metric = button(plot, 1, "recall_at_1")[0]["y"]
    assert len(plot["data"]) == 2 * 4
    place = 0
    for loss in ("triplet", "topk_precision", "contrastive", "proxy_anchor"):
        for trial in search.trials(loss, Stage.SEARCH):
            trace = plot["data"][place]
            assert trace["name"] == f"{loss}, {'best' if trial.number else 'default'}"
            told = [trial.user_attrs[key] for key in sorted(trial.user_attrs) if key.startswith("epoch:")]
            assert trace["y"] == pytest.approx([entry["metrics"]["map_at_r"] for entry in told], rel=1e-4)
            assert other_metric[place] == pytest.approx([entry["metrics"]["recall_at_1"] for entry in told], rel=1e-4)
            assert trace["x"] == by_unit["iterations"][0]["x"][place] == [5, 10, 15, 20]
            assert by_unit["epochs"][0]["x"][place] == [1, 2, 3, 4]
            for unit in ("triplets", "pairs"):
                total, totals = 0, []
                for entry in told:
                    total += entry.get("used", {}).get(unit, 0)
                    totals.append(total)
                counts = unit in told[0].get("used", {})
                assert by_unit[unit][0]["x"][place] == (totals if counts else [])
                assert by_unit[unit][0]["visible"][place] == counts
            place += 1


def test_the_sentence_and_the_table_hold_the_numbers(search: OpenedSearch) -> None:
    figure = figure_of(search)
    assert figure is not None
    # topk_precision's best trial used 19 + 18 + 17 + 16; triplet's had used 48 after one epoch, 95 after two
    triplet, best = value_of("triplet", 1, 1), value_of("topk_precision", 1, 3)
    assert (
        f"With at most 70 triplets the highest map_at_r is {best:.4f} (topk_precision), the lowest {triplet:.4f} "
        f"(triplet); an iteration used {70 / 20:.1f} (topk_precision) to {(48 + 47 + 46 + 45) / 20:.1f} (triplet)."
    ) in figure.finding
    pairs = value_of("contrastive", 1, 3)
    assert (
        f"contrastive, trial 1, used 760 pairs in 20 iterations (38.0 each) and reached a map_at_r of {pairs:.4f}."
    ) in figure.finding
    assert (
        f"With at most 20 iterations the highest map_at_r is {best:.4f} (topk_precision), the lowest {pairs:.4f} "
        "(contrastive)."
    ) in figure.finding
    assert figure.table.header == (
        "loss", "trial", "epochs", "iterations", "triplets", "pairs", "highest map_at_r", "after epoch",
    )  # fmt: skip
    rows = {row[0]: row[1:] for row in figure.table.rows}
    assert rows["topk_precision, best"] == ("1", "4", "20", "70", "–", f"{best:.4f}", "3")
    assert rows["proxy_anchor, default"][3:5] == ("–", "–")


def test_no_figure_if_no_loss_counts_units(opened: Opened) -> None:
    search = trained(opened(losses=["proxy_anchor"], search={"trials": 1}, training=TRAINING))
    assert figure_of(search) is None


def test_the_searches_of_a_campaign_are_one_figure(search_made: Opened, tmp_path: Any) -> None:
    """Two searches of one default trial each."""
    searches = [
        trained(search_made(tmp_path, name=name, losses=[loss], search={"trials": 1}, training=TRAINING))
        for name, loss in (("s-uniform", "triplet"), ("s-top", "topk_precision"))
    ]
    section = effort([StoredSearch(entry.plan.folder) for entry in searches], list(map(write_summary, searches)))
    (figure,) = [entry for entry in section.figures if entry.name == "value-by-used"]
    names = [trace["name"] for trace in plot_of(figure)["data"]]
    assert names == ["s-uniform/triplet, default and best", "s-top/topk_precision, default and best"]
    assert "(s-top/topk_precision) to " in figure.finding


def test_cross_validation_draws_the_first_fold(opened: Opened) -> None:
    search = opened(losses=["triplet"], split={"folds": 2}, search={"trials": 1}, training={**TRAINING, "epochs": 2})
    queue = TrialQueue(only(search_stage(search)))
    job = queue.next_trial()
    assert job is not None
    for fold in (1, 2):
        told = [{**record(epoch, fold / 10 + epoch / 50, fold=fold), "used": {"triplets": 7}} for epoch in (1, 2)]
        queue.on_trial_result(job, {"records": told, "finished": fold == 2})
    figure = figure_of(search)
    (trace,) = plot_of(figure)["data"]
    assert trace["y"] == pytest.approx([0.12, 0.14])
    assert figure is not None
    assert "cross-validation: the first fold" in figure.table.notes


def test_comparisons_have_a_value_of_every_loss(
    search_made: Opened, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One loss uses more in an epoch than the other in its whole training."""
    monkeypatch.setitem(USED, "triplet", lambda number, epoch: {"triplets": 500})
    losses = ["triplet", "topk_precision"]
    figure = figure_of(trained(search_made(tmp_path, losses=losses, search={"trials": 1}, training=TRAINING)))
    assert figure is not None
    triplet, best = value_of("triplet", 0, 1), value_of("topk_precision", 0, 3)
    assert figure.finding.startswith(
        f"With at most 500 triplets the highest map_at_r is {best:.4f} (topk_precision), the lowest {triplet:.4f} "
    )
