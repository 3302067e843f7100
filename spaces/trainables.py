"""Search space of a user-defined training, from the ranges that its class declares."""

from optuna.distributions import BaseDistribution, CategoricalDistribution

from spaces.space import Parameter, Space, numeric_range
from trainables.errors import raise_if_any
from trainables.training.trainable import Choice, Int, Range, trainable_class


def space_of_trainable(path: str) -> Space:
    """Return the declared space of the training at the import path ``path``.

    Raises:
        InvalidInput: a range is impossible, or does not contain its default; all of them.
    """
    space: dict[str, Parameter] = {}
    mistakes = []
    for name, entry in trainable_class(path).space.items():
        try:
            space[name] = Parameter(distribution=_distribution(entry), default=entry.default, source=path)
        except (ValueError, TypeError) as error:
            mistakes.append(f"{path} declares {name} = {entry}: {str(error).rstrip('.')}.")
    raise_if_any(mistakes)
    return space


def _distribution(entry: Range) -> BaseDistribution:
    if isinstance(entry, Choice):
        return CategoricalDistribution(tuple(entry.choices))
    return numeric_range(entry.low, entry.high, log=entry.log, step=entry.step, whole=isinstance(entry, Int))
