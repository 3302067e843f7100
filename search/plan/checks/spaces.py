"""The losses' spaces, as the search file overrides them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from search.config.search_config import SearchConfig
from search.plan.checks.findings import Findings
from search.plan.plan import search_budget
from spaces.search_space import SearchSpace, search_space
from trainables.mistakes import raise_if_any, suggestion

TRAINING = "training"


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
    known = {name: wish for name, wish in for_training.items() if not _is_doubtful(found, name)}
    spaces = {}
    for loss in config.losses:
        wishes = config.space.get(loss.name, {})
        space = found.check(partial(search_space, loss, config.training, wishes, known, checked=not accepted))
        if space is not None:
            spaces[loss.name] = space
            if known == for_training:
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


def _is_doubtful(found: Findings, name: str) -> bool:
    """Whether what may be searched of the training's ``name`` rests on an entry that was left out."""
    keys = (name, "epochs") if name == "warmup_epochs" else (name,)
    return any(found.left_out.touched(f"{TRAINING}.{key}") for key in keys)


def _check_budget(found: Findings, config: SearchConfig, loss: str, space: SearchSpace) -> None:
    """The sampler can search the space, and the budget is enough for one training."""
    budget = search_budget(config, loss, space)
    of_sampler = replace(budget, epochs=None)
    found.check(lambda: raise_if_any(of_sampler.problems()), "search.sampler", "search.trials", "space")
    of_epochs = replace(budget, sampler=None)
    found.check(lambda: raise_if_any(of_epochs.problems()), "search.epochs", "training.epochs", "split.folds")
