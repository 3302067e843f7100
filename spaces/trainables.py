"""Search space of a user-defined training, from the ranges that its class declares."""

import warnings

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from spaces.space import Parameter, Space
from trainables.mistakes import Mistakes, raise_if_any
from trainables.training.trainable import Choice, Float, Range, trainable_class


def space_of_trainable(path: str) -> Space:
    """Return the declared space of the training at the import path ``path``.

    Raises:
        Mistakes: a range is impossible, or does not contain its default; all of them.
    """
    space: dict[str, Parameter] = {}
    mistakes = []
    for name, entry in trainable_class(path).space.items():
        try:
            space[name] = Parameter(distribution=_distribution(entry), default=entry.default, source=path)
        except (ValueError, TypeError) as error:
            mistakes.append(f"{path} declares {name} = {entry}: {str(error).rstrip('.')}. Correct the range.")
    raise_if_any(mistakes)
    return space


def _distribution(entry: Range) -> BaseDistribution:
    if isinstance(entry, Choice):
        return CategoricalDistribution(tuple(entry.choices))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Optuna moves the end of a range with a warning
        try:
            if isinstance(entry, Float):
                return FloatDistribution(entry.low, entry.high, log=entry.log, step=entry.step)
            return IntDistribution(entry.low, entry.high, log=entry.log, step=entry.step)
        except UserWarning as warning:
            raise Mistakes(str(warning)) from None
