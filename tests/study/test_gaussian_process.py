"""The incumbent of the Gaussian process, against the posterior mean in plain loops."""

import math
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.samplers import GPSampler
from optuna.trial import TrialState, create_trial

from search.study.samplers import PosteriorMeanGPSampler

SPACE = {"x": FloatDistribution(0, 1), "choice": CategoricalDistribution(("a", "b"))}


def posterior_means(model: Any) -> np.ndarray:
    """K (K + noise)⁻¹ y with the Matérn kernel of smoothness 5/2, a choice being 0 or 1 from another."""
    points = model._X_train.numpy()
    weights, scale = model.inverse_squared_lengthscales.numpy(), float(model.kernel_scale)
    kernel = np.empty((len(points), len(points)))
    for row, first in enumerate(points):
        for column, second in enumerate(points):
            choice, x = zip(first, second, strict=True)  # in the order of their names
            squares = float(choice[0] != choice[1]) * weights[0] + (x[0] - x[1]) ** 2 * weights[1]
            root = math.sqrt(5 * squares)
            kernel[row, column] = scale * (1 + root + 5 / 3 * squares) * math.exp(-root)
    noisy = kernel + float(model.noise_var) * np.eye(len(points))
    return kernel @ np.linalg.solve(noisy, model._y_train.numpy()[:, 0])


@pytest.mark.parametrize("running", [0, 2])
def test_the_incumbent_is_the_best_posterior_mean_and_not_the_luckiest_value(
    monkeypatch: pytest.MonkeyPatch, running: int
) -> None:
    asked: list[tuple[Any, Any]] = []

    def take(sampler: GPSampler, acqf: Any, best_params: Any) -> Any:
        asked.append((acqf, best_params))
        return best_params[0]

    monkeypatch.setattr(GPSampler, "_optimize_acqf", take)
    generator = np.random.default_rng(0)
    study = optuna.create_study(direction="maximize")
    for number in range(24):
        x, choice = generator.random(), "ab"[number % 2]
        value = -((x - 0.5) ** 2) + 0.2 * generator.standard_normal()
        study.add_trial(create_trial(value=value, params={"x": x, "choice": choice}, distributions=dict(SPACE)))
    for _ in range(running):
        study.add_trial(
            create_trial(
                state=TrialState.RUNNING, params={"x": generator.random(), "choice": "a"}, distributions=dict(SPACE)
            )
        )
    sampler = PosteriorMeanGPSampler(seed=0, n_startup_trials=4)
    study.sampler = sampler
    proposed = study.ask(dict(SPACE)).params
    ((acqf, best_params),) = asked
    assert sampler._gprs_cache_list is not None
    (model,) = sampler._gprs_cache_list
    means = posterior_means(model)
    assert type(acqf).__name__ == ("qLogEI" if running else "LogEI")
    assert acqf._threshold == pytest.approx(means.max())
    assert acqf._threshold < float(model._y_train.max()) - 0.1
    assert best_params[0] == pytest.approx(model._X_train.numpy()[means.argmax()])
    assert proposed == study.trials[int(means.argmax())].params
