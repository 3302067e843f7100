"""The section of one loss's search, compared with plain loops over the trials of its study."""

import json
import math
import re
import statistics
from collections.abc import Callable
from typing import Any

import optuna
import plotly.graph_objects as go
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from support.driving import TrialValue, only, record, train
from support.figures import plot_of
from support.journals import epochs_in
from support.summaries import made_loss, made_row

from benchmarks.statistics.importances import RUNGS, SPACE, search as simulated
from search.driver.choice import freeze
from search.driver.finish import write_summary
from search.driver.stages import confirm_stage, search_stage
from search.records.records import Records
from search.records.writable import WritableRecords
from search.results.summary import BestTrial
from search.show.drawing import Figure, Section
from search.show.sections.importances import importances
from search.show.sections.loss import SearchedLoss, importances_figure, learning_curves, loss_section, slices
from search.stages import Role, Stage
from search.study.trial_queue import QueuedStage, RunningTrial, TrialQueue
from search.tables import PRUNERS
from trainables.training.spec import Epochs, Failed

Opened = Callable[..., WritableRecords]
EPOCHS = 8
FAILURES = {4: "DIVERGED", 6: "OUT_OF_MEMORY", 9: "CODE_ERROR"}
"""Cause by trial: the first two fail in their second epoch, the last one before its first."""


def train_with_failures(stage: QueuedStage, value: TrialValue, failures: dict[int, str] | None = None) -> None:
    """Train a stage, one trial after the other."""
    queue = TrialQueue(only(stage))
    while job := queue.next_trial():
        if cause := (failures or {}).get(job.number):
            if cause != "CODE_ERROR":
                queue.on_trial_result(job, Epochs([record(1, value(job, 1))], finished=False))
            queue.on_trial_result(job, Failed(cause=cause, reason="<b>boom</b> $x$ " + 300 * "y "))
        else:
            train(queue, job, value)


def goodness(job: RunningTrial, epoch: int) -> float:
    """Return a value that is highest at scale 20 or temperature 0.01, and does not rise in every epoch."""
    found = job.spec.hyperparameters
    distance = abs(math.log(found.get("scale", 20) / 20)) + abs(math.log(found.get("temperature", 0.01) / 0.01))
    return 0.5 - distance / 20 + epoch / 40 - (epoch % 3) / 50 + (job.number % 7) / 500


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory, search_made: Opened) -> WritableRecords:
    """Two losses with 16 trials each, some pruned and three failed; the best are confirmed and chosen."""
    search = search_made(
        tmp_path_factory.mktemp("runs"),
        losses=["proxy_anchor", "pnp"],
        training={"epochs": EPOCHS, "batch_size": 20},
        space={"proxy_anchor": {"margin": 0.1, "scale": {"low": 4.0, "high": 64.0, "log": True}}},
        search={"trials": 16},
        selection={"finalists": 2, "seeds": 2},
    )
    train_with_failures(search_stage(search), goodness, FAILURES)
    train_with_failures(confirm_stage(search), lambda job, epoch: goodness(job, epoch) - 0.02)
    freeze(search)
    return search


def section_of(search: WritableRecords, loss: str) -> Section:
    return loss_section(Records(search.folder), write_summary(search), loss)


def figures_of(section: Section) -> dict[str, Figure]:
    assert re.fullmatch(r"[A-Za-z0-9-]+", section.name)
    for figure in section.figures:
        assert figure.name.startswith(section.name)
        assert re.fullmatch(r"[A-Za-z0-9-]+", figure.name)
        assert figure.finding.endswith(".")
        if figure.table:
            assert figure.table.rows
            assert all(len(row) == len(figure.table.header) for row in figure.table.rows)
        go.Figure(plot_of(figure))
        json.dumps(plot_of(figure), allow_nan=False)
    return {figure.name.removeprefix(f"{section.name}-"): figure for figure in section.figures}


def traces_of(figure: Figure | None) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for trace in plot_of(figure)["data"]:
        found.setdefault(trace.get("name", trace["type"]), []).append(trace)
    return found


def points_of(curves: Figure) -> dict[int, list[tuple[int, float]]]:
    """Return the points of each trial's curve, by number."""
    found: dict[int, list[tuple[int, float]]] = {}
    for trace in plot_of(curves)["data"]:
        for x, y, number in zip(trace["x"], trace["y"], trace.get("customdata", ())):
            if number is not None:
                found.setdefault(number, []).append((x, y))
    return found


def last_value(trial: FrozenTrial) -> float:
    return max(found["metrics"]["map_at_r"] for found in epochs_in(trial))


def test_the_curves_are_what_was_measured(chosen: WritableRecords) -> None:
    trials = chosen.trials("pnp", Stage.SEARCH)
    figure = figures_of(section_of(chosen, "pnp"))["learning-curves"]
    found = points_of(figure)
    measured = {
        trial.number: [
            (found["epoch"], pytest.approx(100 * found["metrics"]["map_at_r"], rel=1e-4)) for found in epochs_in(trial)
        ]
        for trial in trials
    }
    assert found == {number: points for number, points in measured.items() if points}
    assert [shape["x0"] for shape in plot_of(figure)["layout"]["shapes"]] == [2, 4]
    assert figure.table is not None
    assert {row[0].split()[1]: row[1] for row in figure.table.rows} == {
        str(trial.number): f"{100 * last_value(trial):.2f}" for trial in trials if found.get(trial.number)
    }


def test_slices_show_each_hyperparameter(chosen: WritableRecords) -> None:
    for loss, varying in (("proxy_anchor", ["scale"]), ("pnp", ["variant", "temperature", "alpha", "bound"])):
        trials = [trial for trial in chosen.trials(loss, Stage.SEARCH) if trial.intermediate_values]
        figure = figures_of(section_of(chosen, loss))["slices"]
        layout, traces = plot_of(figure)["layout"], traces_of(figure)
        for place, name in enumerate(varying):
            axis = layout["xaxis" + str(place + 1) * (place > 0)]
            assert axis["title"]["text"] == name
            assert axis["type"] == {"scale": "log", "temperature": "log", "variant": "category"}.get(name, axis["type"])
            for state in ("complete", "pruned"):
                drawn = [*zip(traces[state][place]["x"], traces[state][place]["y"], strict=True)]
                having = [trial for trial in trials if trial.state.name.lower() == state and name in trial.params]
                shown = [(trial.params[name], 100 * last_value(trial)) for trial in having]
                assert sorted(map(str, drawn)) == sorted(
                    str((float(f"{x:.5g}") if isinstance(x, float) else str(x), float(f"{y:.5g}"))) for x, y in shown
                )
        (best,) = {y for trace in traces["chosen"] for y in trace["y"]}
        number = write_summary(chosen).losses[loss].tuned.number
        assert best == pytest.approx(100 * last_value(chosen.trials(loss, Stage.SEARCH)[number]), rel=1e-4)


def test_the_text_names_the_chosen_configuration(chosen: WritableRecords) -> None:
    section = section_of(chosen, "proxy_anchor")
    number = write_summary(chosen).losses["proxy_anchor"].tuned.number
    assert f"trial {number} is " in " ".join(section.sentences)
    scale = chosen.trials("proxy_anchor", Stage.SEARCH)[number].params["scale"]
    (table,) = section.results
    assert table.rows == (("scale", "32", f"{scale:.4g}", "[4, 64], log"),)


STATES: dict[str, tuple[dict[str, Any], dict[int, str], set[str], tuple[str, ...]]] = {
    "one trial": (
        {"losses": ["pnp"], "search": {"trials": 1}},
        {},
        {"learning-curves", "slices"},
        ("best trial so far is 0 with map_at_r 5", "need 10 trials at the same rung, and 1 trial has a value"),
    ),
    "all failed": (
        {"losses": ["pnp"], "search": {"trials": 3}},
        dict.fromkeys(range(3), "CODE_ERROR"),
        set(),
        ("0 trials completed, 0 pruned and 2 failed", "Nothing can be chosen: no trial is complete."),
    ),
    "nothing varies": (
        {"losses": ["proxy_nca"], "space": {"proxy_nca": {"scale": 1}}, "search": {"trials": 3}},
        {},
        {"learning-curves"},
        ("There are no figures by hyperparameter: this loss has none that varies.",),
    ),
}
"""Changes of a search, its failures, and the figures and sentences of its section."""


@pytest.mark.parametrize(("changes", "failures", "figures", "said"), STATES.values(), ids=STATES)
def test_a_section_shows_what_there_is(
    changes: dict[str, Any], failures: dict[int, str], figures: set[str], said: tuple[str, ...], opened: Opened
) -> None:
    search = opened(**changes)
    train_with_failures(search_stage(search), goodness, failures)
    (loss,) = search.config.loss_names
    section = section_of(search, loss)
    assert section.name == f"loss-{loss.replace('_', '-')}"
    assert set(figures_of(section)) == figures
    shown = " ".join((*section.sentences, *section.remarks, *section.pending))
    assert all(sentence in shown for sentence in said), shown
    assert not section.missing, "nothing is wrong"
    assert bool(section.results) == ("slices" in figures or "CODE_ERROR" in failures.values())


def test_folds_are_the_steps(opened: Opened) -> None:
    search = opened(losses=["pnp"], split={"folds": 4}, search={"trials": 6}, training={"epochs": 2, "batch_size": 20})
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        for fold in range(1, 5):
            values = [0.5 - job.number / 20 + fold / 50 - epoch / 100 for epoch in (1, 2)]
            told = [record(epoch, value, fold=fold) for epoch, value in enumerate(values, start=1)]
            if not queue.on_trial_result(job, Epochs(told, finished=fold == 4)):
                break
    trials = search.trials("pnp", Stage.SEARCH)
    figures = figures_of(section_of(search, "pnp"))
    found = points_of(figures["learning-curves"])
    for trial in trials:
        of_folds = [[-math.inf, -math.inf] for _ in range(4)]
        for entry in epochs_in(trial):
            of_folds[entry["fold"] - 1][entry["epoch"] - 1] = 100 * entry["metrics"]["map_at_r"]
        bests = [max(fold) for fold in of_folds if -math.inf not in fold]
        means = [of_folds[0][0], *(statistics.fmean(bests[: max(1, epochs // 2)]) for epochs in range(2, 9))]
        assert [y for _, y in found[trial.number]] == pytest.approx(means[: len(found[trial.number])], rel=1e-4)
    assert {len(values) for values in found.values()} == {2, 8}
    assert f"{len(trials)} reached epoch 2" in figures["learning-curves"].finding


# Simulated and hand-made trials.


def made_searched(trials: list[FrozenTrial], *, loss: str = "made", steps: int = EPOCHS) -> SearchedLoss:
    best = max(trials, key=lambda trial: trial.value or 0.0)
    entry = made_loss(
        best=BestTrial(params=best.params, value=best.value or 0.0, number=best.number),
        default=made_row(Role.DEFAULT, params=trials[0].params, search_value=trials[0].value),
        tuned=made_row(Role.TUNED, params=best.params, number=best.number),
    )
    pruner = PRUNERS["asha"](steps=steps)
    return SearchedLoss(loss=loss, objective="map_at_r", summary=entry, pruner=pruner, trials=tuple(trials))


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_importances_find_what_matters_among_pruned_trials_if_there_are_ten() -> None:
    first, names = 0, list(SPACE)
    for seed in range(4):
        found = importances(simulated(24, 0.1, seed), RUNGS, names)
        assert found is not None
        assert sum(found.shares.values()) == pytest.approx(1)
        assert found.rungs[2] == 24
        assert list(found.shares.values()) == sorted(found.shares.values(), reverse=True)
        first += next(iter(found.shares)) == "strong"
    assert first >= 3
    assert importances(simulated(9, 0.1, 0), RUNGS, names) is None
    assert importances(simulated(10, 0.1, 0), RUNGS, []) is None
    assert importances(simulated(10, 0.1, 0), RUNGS, names) is not None
    assert importances_figure(made_searched(simulated(9, 0.1, 0))) is None
    figure = importances_figure(made_searched(simulated(40, 0.05, 0)))
    assert figure is not None
    assert figure.finding.startswith("strong matters most with ")
    assert "40 after epoch 2" in figure.finding


def test_markup_stays_text() -> None:
    """Plotly interprets ``<b>`` and ``<a>`` in texts."""
    evil = '<a href="https://x.y">$z$</a>'
    names = (evil, "<b>", "c")
    ranges = {evil: CategoricalDistribution(names), **dict.fromkeys(("<i>", "y"), FloatDistribution(0, 1))}
    study = optuna.create_study(direction="maximize")
    for n in range(30):
        trial = create_trial(
            state=TrialState.PRUNED if n % 2 else TrialState.COMPLETE,
            value=n / 30,
            params={evil: names[n % 3], "<i>": n / 30, "y": (n * 7 % 30) / 30},
            distributions=ranges,
            intermediate_values={1: n / 40, 2: n / 30},
            user_attrs={"outcome": "all <i>epochs</i>"},
        )
        study.add_trial(trial)
    searched = made_searched(study.trials, loss="a.b_c-d", steps=2)
    assert searched.name == "loss-a-2e-b-c-2d-d"
    for draw in (learning_curves, importances_figure, slices):
        figure = draw(searched)
        text = json.dumps(plot_of(figure))
        assert figure is not None
        assert re.fullmatch(r"[A-Za-z0-9-]+", figure.name)
        assert re.findall(r"<(?!br>|extra></extra>|/extra>)", text) == []
        assert draw is learning_curves or "$z$" in text
