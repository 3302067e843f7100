"""The losses' spaces, as the search file overrides them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from search.config.search_config import SearchConfig
from search.plan.checks.findings import Findings
from search.plan.plan import search_budget
from spaces.search_space import SearchSpace, search_space
from spaces.training import TRAINING
from trainables.mistakes import raise_if_any, suggestion


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
