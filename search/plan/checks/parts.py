"""Checks of losses, spaces, samplers, networks and metrics."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from search.config.names import shipped_packages
from search.config.search_config import SearchConfig
from search.config.validation import Findings
from search.plan.plan import search_budget
from spaces.search_space import TRAINING, SearchSpace, search_space
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.metrics.table import name_conflicts, own_metric
from trainables.mistakes import raise_if_any, suggestion
from trainables.models import ModelConfig
from trainables.models.backbones import LIBRARIES, backbone
from trainables.parts import is_own
from trainables.training.stack import why_not_stacked

# Whether one's own parts, which a search file names by their import paths, are there, and what can be in a stack.


def check_parts(found: Findings, config: SearchConfig) -> None:
    """Own metrics, batch sampler and network can be imported and are what they should be, and so is what is shipped.

    Losses are looked at with their spaces, and the data set when the file is read.
    """
    for key, path, load in _own_parts(config):
        if not found.left_out.replaced(key):
            found.check(lambda load=load, path=path: load(path))  # type: ignore[misc]
    metrics = [path for key, path, _ in _own_parts(config) if "training" not in key and "model" not in key]
    found.add(name_conflicts(metrics))
    found.check(lambda: shipped_packages(config.ship), "ship")


def check_stack(found: Findings, config: SearchConfig) -> None:
    """Where several trials are to be trained together, each loss can be with its network and batches."""
    parts = ("losses", "model.backbone", "training.sampler", "training_by_loss", "split.folds")
    found.check(
        lambda: raise_if_any(list(dict.fromkeys(_unstacked(config)))),
        "resources.stack",
        "resources.gpus_per_trial",
        *parts,
    )


def _unstacked(config: SearchConfig) -> Iterator[str]:
    stack, gpus = config.resources.stack, config.resources.gpus_per_trial
    if stack > 1 and gpus > 1:
        yield (
            f"resources.stack is {stack} and resources.gpus_per_trial is {gpus:g}: one is for networks of which several"
            " fit on a GPU, the other for those that need several GPUs; set one of them to 1."
        )
    for loss in config.losses if stack > 1 else ():
        reason = why_not_stacked(
            loss=loss.key,
            backbone=config.model.backbone,
            sampler=config.training_of(loss.name).sampler,
            folds=config.split.folds or 0,
        )
        if reason:
            yield f"resources.stack is {stack}, and {reason}; set it to 1, which trains each trial by itself."


def _own_parts(config: SearchConfig) -> Iterator[tuple[str, str, Callable[[str], Any]]]:
    """The key, the import path and what loads it, of each."""
    tested = () if isinstance(config.metrics.test, str) else config.metrics.test
    metrics = {"metrics.validation": config.metrics.validation, "metrics.test": tested}
    for key, paths in {**metrics, "search.objective": (config.search.objective,)}.items():
        yield from ((key, path, own_metric) for path in paths if is_own(path))
    samplers = {"training.sampler": config.training.sampler}
    samplers |= {f"training_by_loss.{loss}": config.training_of(loss).sampler for loss in config.training_by_loss}
    for key, sampler in samplers.items():
        if is_own(sampler):
            yield key, sampler, BATCH_SAMPLERS.__getitem__
    network = config.model.backbone
    if is_own(network) and network.partition(":")[0] not in LIBRARIES:
        yield "model.backbone", network, backbone


# The losses' spaces, as the search file overrides them.


def spaces_of(config: SearchConfig) -> dict[str, SearchSpace]:
    """Every loss's space.

    Raises:
        Mistakes: all that is wrong with them.
    """
    found = Findings()
    spaces = check_spaces(found, config)
    found.raise_if_any()
    return spaces


def check_spaces(found: Findings, config: SearchConfig, *, accepted: bool = False) -> dict[str, SearchSpace]:
    """The spaces of the losses that have a valid one; what is wrong with the others is found.

    Spaces that were ``accepted`` when their search began are not tried on the losses again, which imports torch.
    """
    if found.left_out.replaced("losses"):
        return {}
    found.check(lambda: raise_if_any(list(_other_losses(config))), "losses")
    for_training = config.space.get(TRAINING, {})
    spaces = {}
    for loss in config.losses:
        wishes = config.space.get(loss.name, {})
        sure = partial(_sure, found, loss.name)
        known, own = sure(for_training), {**wishes, TRAINING: sure(wishes[TRAINING])} if TRAINING in wishes else wishes
        training = config.training_of(loss.name)
        space = found.check(partial(search_space, loss, training, own, known, checked=not accepted))
        if space is not None:
            spaces[loss.name] = space
            if (known, own) == (for_training, wishes):
                _check_budget(found, config, loss.name, space)
    return spaces


def _other_losses(config: SearchConfig) -> Iterator[str]:
    known = (*config.loss_names, TRAINING)
    for name in config.space:
        if name not in known:
            yield (
                f"space.{name}: this is none of the search's losses ({', '.join(config.loss_names)})"
                f"{suggestion(name, known)}; add it to losses or remove it."
            )


def _sure(found: Findings, loss: str, wishes: Any) -> Any:
    """``wishes`` for the training without those that rest on an entry that was left out."""
    if not isinstance(wishes, Mapping):
        return wishes
    return {name: wish for name, wish in wishes.items() if not _is_doubtful(found, loss, name)}


def _is_doubtful(found: Findings, loss: str, name: str) -> bool:
    """Whether what may be searched of the training's ``name`` rests on an entry that was left out."""
    keys = (name, "epochs") if name == "warmup_epochs" else (name,)
    sections = (TRAINING, f"training_by_loss.{loss}")
    return any(found.left_out.touched(f"{section}.{key}") for section in sections for key in keys)


def _check_budget(found: Findings, config: SearchConfig, loss: str, space: SearchSpace) -> None:
    """The sampler can search the space, and the budget is enough for one training."""
    budget = search_budget(config, loss, space)
    of_sampler = replace(budget, epochs=None)
    found.check(lambda: raise_if_any(of_sampler.problems()), "search.sampler", "search.trials", "space")
    of_epochs = replace(budget, sampler=None)
    found.check(lambda: raise_if_any(of_epochs.problems()), "search.epochs", "training.epochs", "split.folds")


# Whether the noise stage's configuration is one of the search.


def check_noise(found: Findings, config: SearchConfig, spaces: Mapping[str, SearchSpace]) -> None:
    """The noise stage's loss is one of the search's, and its configuration lies in that one's space."""
    found.check(lambda: raise_if_any(_loss_mistakes(config)), "noise.loss", "losses")
    if config.noise_loss in spaces:
        keys = ("noise.loss", "noise.configuration", "losses", "space", "training")
        found.check(lambda: raise_if_any(_configuration_mistakes(config, spaces[config.noise_loss])), *keys)


def _loss_mistakes(config: SearchConfig) -> list[str]:
    loss = config.noise_loss
    if loss in config.loss_names:
        return []
    return [
        f"noise.loss is {loss!r}, none of the search's losses ({', '.join(config.loss_names)})"
        f"{suggestion(loss, config.loss_names)}; name one of them, or null for the first."
    ]


def _configuration_mistakes(config: SearchConfig, space: SearchSpace) -> list[str]:
    given = config.noise.configuration
    if given == "default":
        return []
    beside = space.complete(given)
    return [
        f"noise.configuration.{name}: {config.noise_loss} has no value {value!r} there in this search; there are "
        f"{', '.join(beside)}, with the ranges of the space."
        for name, value in given.items()
        if name not in beside or not space.parameters[name].contains(value)
    ]


# Whether the network can be built and takes the images: the one check that needs torch, so the last one.

SMALLEST = 16
"""The side of the smallest images that the built-in network is known to take."""


def check_network(found: Findings, config: SearchConfig) -> None:
    """The network is built, with its weights, and embeds one image.

    What is sure to work is not tried: torch alone takes seconds to import.
    """
    if _is_sure(config.model, config.training.image_size):
        return
    if config.resources.gpus_per_trial > 1 and not config.model.freeze_bn:
        keys = ("model.backbone", "model.weights", "model.freeze_bn", "resources.gpus_per_trial")
        found.check(lambda: _common_statistics(config.model), *keys)
    if found.left_out.touched("training.image_size"):
        found.check(lambda: _weights(config.model), "model.backbone", "model.weights")
    else:
        found.check(lambda: _smoke_test(config), "model.backbone", "model.weights")


def _is_sure(model: ModelConfig, image_size: int) -> bool:
    return model.backbone == "convnet" and model.weights is None and image_size >= SMALLEST


def _weights(model: ModelConfig) -> None:
    from trainables.models.weights import weights_file

    weights_file(model)


def _common_statistics(model: ModelConfig) -> None:
    """Whether the network's batch normalisation can be that of several GPUs."""
    import torch

    from trainables.models.embedding import EmbeddingModel
    from trainables.training.distributed.batch import take_common_statistics

    with torch.random.fork_rng(devices=[]):
        take_common_statistics(EmbeddingModel(model), torch.device("cpu"))


def _smoke_test(config: SearchConfig) -> None:
    from trainables.models.embedding import smoke_test

    smoke_test(config.model, config.training.image_size)
