"""The learning rates that a backbone gets over a whole training, against the papers' printed schedules."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.small_training import drawn_images, small_spec
from support.trees import Trees, recipe_on

from search.config.recipes import recipes
from trainables.data.store.spec import StoreSpec
from trainables.training.config import TrainingConfig
from trainables.training.train import Training

PAPERS = [name for name in recipes() if name != "quickstart"]


def steps(lr: float, step: int, gamma: float, epochs: int) -> list[float]:
    """Return the rate of every epoch if it is multiplied by ``gamma`` after every ``step`` epochs."""
    rates, rate = [], lr
    for epoch in range(1, epochs + 1):
        rates.append(rate)
        if epoch % step == 0:
            rate *= gamma
    return rates


def milestones(lr: float, after: Sequence[int], gamma: float, epochs: int) -> list[float]:
    """Return the rate of every epoch if it is multiplied by ``gamma`` after each epoch of ``after``."""
    return [lr * gamma ** sum(epoch > last for last in after) for epoch in range(1, epochs + 1)]


# Psomas, Table 3: learning rate, step size, gamma.
THESIS = {
    "cub200-resnet50": (1e-4, 5, 0.1),
    "cub200-bninception": (1e-4, 10, 0.1),
    "cub200-googlenet": (1e-4, 10, 0.1),
    "cars196-resnet50": (1e-4, 10, 0.1),
    "cars196-bninception": (1e-4, 20, 0.1),
    "cars196-googlenet": (1e-4, 20, 0.1),
    "sop-resnet50": (6e-4, 10, 0.25),
    "sop-bninception": (6e-4, 20, 0.25),
    "sop-googlenet": (6e-4, 20, 0.25),
}

# The rate of each epoch. The thesis's text (3.4) has 100 epochs and no warm-up. In MPA's first epoch, Proxy-Anchor's
# warm-up, the backbone does not learn; the rest of 4.2's epochs do. The topk recipes state why their rate is another.
RATES = {
    **{f"thesis-{name}": steps(lr, step, gamma, 100) for name, (lr, step, gamma) in THESIS.items()},
    "mpa-cub200": [0.0, *steps(1e-4, 20, 0.5, 60)[1:]],
    "mpa-cars196": [0.0, *steps(1e-4, 20, 0.5, 60)[1:]],
    "mpa-sop": [0.0, *steps(1e-4, 20, 0.5, 100)[1:]],
    "pnp-sop": milestones(1e-5, (120, 220, 250, 280), 0.3, 400),
    "pnp-vehicleid": milestones(1e-5, (120, 220, 250, 280), 0.3, 400),
    "pnp-inaturalist": milestones(1e-5, (120, 220, 250, 280), 0.3, 400),
    "topk-cub200": milestones(1e-4, (8, 20, 70), 0.1, 80),
    "topk-cars196": milestones(1e-4, (10, 30, 70), 0.1, 80),
    "topk-sop": milestones(1e-4, (15, 100, 200), 0.1, 120),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    return drawn_images(tmp_path_factory.mktemp("images"))


def backbone_rates(settings: TrainingConfig, images: StoreSpec, directory: Path) -> list[float]:
    """Return the backbone's learning rate in every epoch, 0 while its parameters require no gradients.

    The optimizer and its rates are a real training's, on small images with the built-in network.
    """
    spec = small_spec(images, directory, epochs=settings.epochs)
    small = {name: getattr(spec.training, name) for name in ("batch_size", "image_size", "images_per_class", "sampler")}
    training = Training(replace(spec, training=replace(settings, **small, resize_size=None)), torch.device("cpu"))
    backbone = list(training.model.backbone.parameters())
    (group,) = [group for group in training.optimizer.param_groups if group["params"][0] is backbone[0]]
    rates = []
    for epoch in range(1, settings.epochs + 1):
        training.set_train_mode(epoch)
        training.set_learning_rates(epoch, 0, steps=1)
        rates.append(group["lr"] if all(parameter.requires_grad for parameter in backbone) else 0.0)
    return rates


@pytest.mark.parametrize("recipe", PAPERS)
def test_the_backbone_learns_by_the_printed_schedule(
    recipe: str, trees: Trees, images: StoreSpec, tmp_path: Path
) -> None:
    config = recipe_on(trees, recipe)
    rates = backbone_rates(config.training_of(config.loss_names[0]), images, tmp_path)
    assert sum(rates) == pytest.approx(sum(RATES[recipe]))
    assert rates == pytest.approx(RATES[recipe])
