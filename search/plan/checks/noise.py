"""Whether the noise stage's configuration is one of the search."""

from collections.abc import Mapping

from search.config.search_config import SearchConfig
from search.plan.checks.findings import Findings
from spaces.search_space import SearchSpace
from trainables.mistakes import raise_if_any, suggestion


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
