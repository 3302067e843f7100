"""Simulated searches on a landscape with a known optimum, noise and a cliff."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from search.study.sampler import Sampler
from search.study.study import SeenStudy
from search.tables import SAMPLERS
from spaces.search_space import SearchSpace
from spaces.space import Float, Space, Value

CLIFF = 2 / 3
"""Trials with a larger first parameter diverge: a third of the space."""
TRIALS = 16
FAILURE = {"cause": "DIVERGED", "reason": "The training loss became nan in epoch 1."}
WIDTH = 0.4

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True, kw_only=True)
class Landscape:
    """A hill of height 1 over the unit cube."""

    optimum: Mapping[str, float]
    noise: float = 0.0
    diverges: bool = False

    def height(self, values: Mapping[str, Value]) -> float:
        """Return the value without noise."""
        squares = sum((float(values[name]) - best) ** 2 for name, best in self.optimum.items())  # type: ignore[arg-type]
        return float(np.exp(-squares / (2 * WIDTH**2)))

    def is_lost(self, values: Mapping[str, Value]) -> bool:
        """Return True if the training diverges."""
        return self.diverges and float(values["x0"]) > CLIFF  # type: ignore[arg-type]

    def space(self, default: Mapping[str, Value]) -> SearchSpace:
        """Return the search space, with ``default`` as trial 0."""
        parameters: Space = {name: Float(0, 1, default=default[name], source="simulated") for name in self.optimum}
        return SearchSpace(parameters=parameters, declared=parameters)


Tell = Callable[[optuna.Study, FrozenTrial, float | None], None]
"""A function that tells a study a trial's value, None if it diverged."""


def tell_failed(study: optuna.Study, trial: FrozenTrial, value: float | None) -> None:
    """Tell a divergence as FAIL."""
    study.tell(trial.number, value, state=TrialState.FAIL if value is None else TrialState.COMPLETE)


def tell_pruned(study: optuna.Study, trial: FrozenTrial, value: float | None) -> None:
    """Tell a divergence as PRUNED without a value."""
    study.tell(trial.number, value, state=TrialState.PRUNED if value is None else TrialState.COMPLETE)


def tell_as_searches_do(study: optuna.Study, trial: FrozenTrial, value: float | None) -> None:
    """Tell a divergence as FAIL with its cause to a :class:`SeenStudy`."""
    assert isinstance(study, SeenStudy)
    if value is None:
        study._storage.set_trial_user_attr(trial._trial_id, "failure", FAILURE)
    tell_failed(study, trial, value)
    study.take(study._storage.get_trial(trial._trial_id))


def climb(
    study: optuna.Study,
    landscape: Landscape,
    sampler: Sampler,
    tell: Tell,
    *,
    slots: int,
    generator: np.random.Generator,
) -> list[FrozenTrial]:
    """Search ``landscape``: the default first, then the sampler's proposals; the oldest of ``slots`` ends first."""
    noise = generator.standard_normal(sampler.trials) * landscape.noise
    running: list[int] = []
    study.enqueue_trial(dict(sampler.space.default))
    for number in range(sampler.trials + slots):
        if number >= slots and running:
            trial = study.get_trials(deepcopy=False)[running.pop(0)]
            lost = landscape.is_lost(trial.params)
            tell(study, trial, None if lost else landscape.height(trial.params) + noise[trial.number])
        if number < sampler.trials:
            study.sampler = sampler.build(number, study.get_trials(deepcopy=False))
            sampler.space.suggest(study.ask())
            running.append(number)
    return study.get_trials(deepcopy=False)


def plain_study(sampler: Sampler) -> optuna.Study:
    """Create a plain Optuna study."""
    return optuna.create_study(direction="maximize")


def seen_study(sampler: Sampler) -> optuna.Study:
    """Create a study as the samplers of searches see it."""
    study = plain_study(sampler)
    trials = partial(study.get_trials, deepcopy=False)
    return SeenStudy(study.study_name, study._storage, trials, as_worst=sampler.models_complete)


WAYS: dict[str, tuple[Callable[[Sampler], optuna.Study], Tell]] = {
    "told FAIL": (plain_study, tell_failed),
    "told PRUNED": (plain_study, tell_pruned),
    "as searches do": (seen_study, tell_as_searches_do),
}


def near_a_cliff(seed: int) -> Landscape:
    """Return a landscape whose optimum is 0.07 before the cliff, and random on the other axes."""
    x1, x2 = np.random.default_rng(seed).uniform(0.2, 0.8, 2)
    return Landscape(optimum={"x0": 0.6, "x1": x1, "x2": x2}, diverges=True, noise=0.02)


def lost_and_best(sampler_name: str, way: str, slots: int, searches: int) -> tuple[list[float], list[float]]:
    """Return for each search the share of modelled trials that diverge, and the height of the best trial."""
    make, tell = WAYS[way]
    lost, best = [], []
    for seed in range(searches):
        landscape = near_a_cliff(seed)
        space = landscape.space({"x0": 0.5, "x1": 0.5, "x2": 0.5})
        sampler = SAMPLERS[sampler_name](loss="made-up", space=space, seed=seed, trials=TRIALS)
        generator = np.random.default_rng(seed)
        trials = climb(make(sampler), landscape, sampler, tell, slots=slots, generator=generator)
        modelled = trials[sampler.startup_trials + slots - 1 :]
        lost.append(float(np.mean([landscape.is_lost(trial.params) for trial in modelled])))
        best.append(max(landscape.height(trial.params) for trial in trials if not landscape.is_lost(trial.params)))
    return lost, best
