"""The contract of every sampler: proposals inside the space, and the same ones after a restart."""

import math
from collections.abc import Callable
from contextlib import suppress
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from support.driving import Opened, begun, drive, only, record, train, train_side_by_side
from support.refusals import sentences_of
from support.small_search import SearchFile

from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from search.driver.stages import search_stage
from search.records.writable import WritableRecords, open_search
from search.stages import Stage
from search.study.sampler import quantile
from search.study.trial_queue import RunningTrial, TrialQueue
from search.tables import SAMPLERS
from spaces.space import Choice, Float, Int, Range
from trainables.training.spec import Epochs, Failed, derived_seed

Make = Callable[..., WritableRecords]

CONDITIONAL = {"pnp": {"temperature": [0.01, 0.02], "alpha": {"low": 2, "high": 4, "step": 2}, "bound": [4, 1, 2]}}
CASES: dict[str, dict[str, Any]] = {
    "tpe": {"losses": ["pnp"], "trials": 8},
    "random": {"losses": ["pnp"], "trials": 8},
    "qmc": {"losses": ["pnp"], "trials": 8},
    "grid": {"losses": ["pnp"], "space": CONDITIONAL},
    "coordinate": {"losses": ["pnp"], "space": CONDITIONAL},
    "gp": {"losses": ["proxy_anchor"], "trials": 5},  # it models the fifth, and is slow
    "cmaes": {"losses": ["proxy_anchor"], "trials": 12},  # with a third generation of five
}
PINNED = {"losses": ["proxy_anchor"], "space": {"proxy_anchor": {"margin": 0.1, "scale": 32}}}
numbers = count(1)
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS)


@pytest.fixture
def make(opened: Opened) -> Make:
    """Return a function that makes searches with trainings of one epoch."""

    def make_one(sampler: str, *, trials: int = 16, **changes: Any) -> WritableRecords:
        search = {"sampler": sampler, "pruner": "none", "trials": trials}
        return opened(
            name=f"search-{next(numbers)}", search=search, training={"epochs": 1, "batch_size": 20}, **changes
        )

    return make_one


def hashed(job: RunningTrial, epoch: int) -> float:
    """Return a value that is independent of its neighbours'."""
    return derived_seed(str(sorted(job.spec.hyperparameters.items()))) / 2**31


def proposals(search: WritableRecords) -> list[dict[str, Any]]:
    (loss,) = search.config.loss_names
    return [trial.params for trial in search.study(loss, Stage.SEARCH).trials()]


def end(queue: TrialQueue, job: RunningTrial) -> None:
    """Train a trial, or let it diverge after a good epoch."""
    if job.number in (1, 3):
        assert queue.on_trial_result(job, Epochs([record(1, 0.99)], finished=False))
        queue.on_trial_result(job, Failed(cause="DIVERGED", reason="x"))
    else:
        train(queue, job, hashed)


@each_sampler
def test_a_search_that_died_again_and_again_proposes_what_one_that_lived_does(make: Make, sampler: str) -> None:
    """The default is first, and values are in their ranges and on their steps."""
    lived = make(sampler, **CASES[sampler])
    queue = TrialQueue(only(search_stage(lived)))
    while job := queue.next_trial():
        end(queue, job)
    died = make(sampler, **CASES[sampler])
    queue = TrialQueue(only(search_stage(died)))
    while queue.next_trial():  # the driver dies, and the next one resumes
        died = open_search(died.plan)
        queue = TrialQueue(only(search_stage(died)))
        job = begun(queue)
        end(queue, job)
        died = open_search(died.plan)
        if not died.is_done(Stage.SEARCH):  # another one dies between Optuna's ask and the first value
            with suppress(KeyboardInterrupt), died.storage.transaction():
                died.study(job.loss, Stage.SEARCH)._study.ask()
                raise KeyboardInterrupt
        died = open_search(died.plan)
        queue = TrialQueue(only(search_stage(died)))
    assert queue.done
    assert proposals(died) == proposals(lived)
    (space,) = lived.plan.spaces.values()
    found = proposals(lived)
    assert found[0] == space.default
    assert len({str(values) for values in found}) > len(found) / 2
    for values in found:
        assert list(values) == list(space.complete(values))
        for name, value in values.items():
            assert space.parameters[name].contains(value)
            if allowed := space.parameters[name].steps:
                assert any(value == (pytest.approx(other) if isinstance(other, float) else other) for other in allowed)


@each_sampler
def test_a_space_without_a_choice_gives_other_seeds_of_the_default(make: Make, sampler: str) -> None:
    search = make(sampler, trials=3, **PINNED)
    drive(search)
    trials = search.study("proxy_anchor", Stage.SEARCH).trials()
    assert len(trials) == (1 if sampler in ("grid", "coordinate") else 3)
    assert [trial.params for trial in trials] == [search.plan.spaces["proxy_anchor"].default] * len(trials)
    assert [trial.user_attrs.get("replicate_of") for trial in trials] == [None, 0, 0][: len(trials)]
    assert len({trial.user_attrs["seed"] for trial in trials}) == len(trials)
    assert search.is_done(Stage.SEARCH)


@each_sampler
def test_trials_side_by_side_differ(make: Make, sampler: str) -> None:
    search = make(sampler, **CASES[sampler])
    train_side_by_side(TrialQueue(only(search_stage(search))), 3, hashed)
    found = proposals(search)
    assert len({str(values) for values in found}) > len(found) / 2
    assert search.is_done(Stage.SEARCH)


def test_tpe_counts_running_trials_as_bad_ones(make: Make) -> None:
    """A running trial at the best point changes the next proposal, for an equal seed."""
    search = make("tpe", trials=40, losses=["proxy_anchor"])
    space = search.plan.spaces["proxy_anchor"]
    tpe = SAMPLERS["tpe"](loss="proxy_anchor", space=space, seed=0, trials=40)
    distributions = {name: parameter.distribution for name, parameter in space.parameters.items()}
    ended = [
        create_trial(params={"margin": margin / 10, "scale": 50.0}, distributions=distributions, value=-abs(margin - 5))
        for margin in range(11)
    ]
    running = create_trial(params=ended[5].params, distributions=distributions, state=TrialState.RUNNING)

    def proposed(*trials: FrozenTrial) -> dict[str, Any]:
        study = optuna.create_study(direction="maximize")
        study.add_trials(trials)
        study.sampler = tpe.build(30, study.get_trials())
        return study.ask(distributions).params

    assert proposed(*ended) == proposed(*ended) != proposed(*ended, *[running] * 10)


def test_the_grid_has_every_cell_once(make: Make) -> None:
    search = make("grid", **CASES["grid"])
    drive(search, hashed)
    expected = [
        {"variant": variant, "temperature": temperature, **extra}
        for variant, extras in {
            "Ib": [{"bound": bound} for bound in (4, 1, 2)],
            "Ds": [{}],
            "Dq": [{"alpha": alpha} for alpha in (2.0, 4.0)],
        }.items()
        for temperature, extra in product((0.01, 0.02), extras)
    ]
    found = proposals(search)
    assert len(found) == len(expected) == 12
    assert all(cell in found for cell in expected)
    (trials,) = [search.study("pnp", Stage.SEARCH).trials()]
    assert search.plan.budget("pnp").early_end(trials) == "each of the grid's 12 cells has had its trial"


def naive_coordinate_search(
    default: dict[str, Any], grids: dict[str, list[Any]], trial_value: Callable[[dict[str, Any]], float]
) -> list[dict[str, Any]]:
    """Run the thesis's procedure in loops, in a space without conditions."""
    tried = [default]
    held = dict(default)
    for name, grid in grids.items():
        scores = {}
        for value in grid:
            candidate = {**held, name: value}
            scores[value] = trial_value(candidate)
            if candidate not in tried:
                tried.append(candidate)
        best = max(scores.values())
        if scores[held[name]] < best:
            held[name] = next(value for value in grid if scores[value] == best)
    return tried


def test_coordinates_are_gone_over_as_the_thesis_does(make: Make) -> None:
    """Multi-similarity over grids of its four hyperparameters, on a function with a valley between two hills."""
    wishes = {
        "pos_scale": {"low": 2, "high": 20, "step": 6},
        "neg_scale": [30, 50, 70],
        "epsilon": {"low": 0, "high": 0.4, "step": 0.1},
    }
    search = make("coordinate", trials=40, losses=["multi_similarity"], space={"multi_similarity": wishes})

    def trial_value(values: dict[str, Any]) -> float:
        return float(
            math.sin(9 * values["margin"]) + math.cos(values["pos_scale"]) * values["margin"] + values["epsilon"]
        )

    drive(search, lambda job, epoch: trial_value(dict(job.spec.hyperparameters)))
    grids = {
        "margin": [round(0.1 * step, 12) for step in range(11)],
        "pos_scale": [2.0, 8.0, 14.0, 20.0],
        "neg_scale": [30, 50, 70],
        "epsilon": [0.0, 0.1, 0.2, 0.3, 0.4],
    }
    default = search.plan.spaces["multi_similarity"].default
    expected = naive_coordinate_search(default, grids, trial_value)
    assert proposals(search) == expected
    assert len(expected) == search.plan.budget("multi_similarity").most == 1 + 10 + 3 + 2 + 4


def test_the_next_coordinate_waits_for_the_best_value_of_the_last_one(make: Make) -> None:
    search = make(
        "coordinate", losses=["proxy_anchor"], space={"proxy_anchor": {"margin": [0.1, 0.2], "scale": [8, 32]}}
    )
    queue = TrialQueue(only(search_stage(search)))
    default, other = begun(queue), begun(queue)
    assert queue.has_to_wait
    train(queue, other, lambda job, epoch: 0.5)
    assert queue.next_trial() is None
    queue.on_trial_result(default, Failed(cause="DIVERGED", reason="x"))
    assert begun(queue).spec.hyperparameters == {"margin": 0.2, "scale": 8}


def test_quasi_random_points_fall_into_every_eighth_of_every_range(make: Make) -> None:
    """The property that gives the sequence its name, after a restart in the middle."""
    wishes = {"margin": {"low": 0, "high": 1}, "scale": {"low": 1, "high": 256, "log": True}}
    search = make("qmc", trials=9, losses=["proxy_anchor"], space={"proxy_anchor": wishes})
    drive(search)
    points = [(values["margin"], math.log(values["scale"]) / math.log(256)) for values in proposals(search)[1:]]
    for axis in np.array(points).T:
        assert sorted(int(8 * value) for value in axis) == list(range(8))


@pytest.mark.parametrize(
    "entry",
    [
        Choice(("a", "b", "c")), Int(1, 9, step=2), Int(1, 64, log=True), Float(0, 1, step=0.1), Float(-1, 1),
        Float(1e-4, 1, log=True),
    ],
)  # fmt: skip
def test_shares_cover_a_range(entry: Range) -> None:
    values: list[Any] = [quantile(entry, share) for share in np.linspace(0, 1, 1001)[:-1]]
    assert all(entry.distribution._contains(entry.distribution.to_internal_repr(value)) for value in values)
    if not isinstance(entry, Float):
        assert {values.count(choice) for choice in entry.ends} == {333, 334}
        return
    assert values == sorted(values)
    assert values[0] == pytest.approx(entry.low)
    assert values[-1] == pytest.approx(entry.high, rel=0.02)
    if not isinstance(entry, Int):
        low, high = entry.low, entry.high
        assert values[500] == pytest.approx(math.sqrt(low * high) if entry.log else (low + high) / 2, abs=0.06)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"search": {"sampler": "coordinate", "pruner": "hyperband"}}, "(it is hyperband) or sampler to tpe."),
    ({"search": {"sampler": "cmaes", "pruner": "none"}}, "space.pnp.variant is a choice of Ib, Ds, Dq; pin it"),
    ({"search": {"sampler": "gp", "pruner": "none"}}, "space.pnp.alpha exists only for some values of variant; pin"),
    ({"search": {"sampler": "grid"}, "losses": ["multi_similarity"]}, "of multi_similarity takes up to 302,500; ask"),
    (
        {"search": {"sampler": "coordinate", "pruner": "none"}, "losses": ["multi_similarity"]},
        "search.trials is 16 and trying all values of multi_similarity takes up to 119; ask for as many trials",
    ),
]


@pytest.mark.parametrize(("changes", "expected"), REFUSED, ids=[expected[:50] for _, expected in REFUSED])
def test_what_cannot_work_is_refused(search_file: SearchFile, changes: dict[str, Any], expected: str) -> None:
    content = search_file(**changes)
    assert expected in "\n".join(sentences_of(lambda: make_plan(parse_config(content), Path("/nonexistent-runs"))))
