"""The space of one loss in one search: declared, then as the search file wants it; and its way into Optuna."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from optuna import Trial
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from spaces.configuration import PREFIX, Configuration
from spaces.declared import declared_space
from spaces.override import override
from spaces.space import Parameter, Space, steps
from spaces.training import SEARCHABLE, TRAINING, training_space
from spaces.value import Value
from trainables.losses import LOSSES
from trainables.losses.loss_part import LossPart, loss_part
from trainables.mistakes import Mistakes, raise_if_any
from trainables.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """What is searched for one loss: the loss's parameters, then the training's under ``training.<name>``."""

    parameters: Space
    declared: Space

    @property
    def clipped(self) -> tuple[str, ...]:
        """The parameters of trial 0 whose paper default the search file excludes."""
        return tuple(name for name, value in self.default.items() if value != self.declared[name].default)

    @property
    def default(self) -> Configuration:
        """Trial 0: the papers' defaults, or the nearest values that the search file allows."""
        return self.complete({})

    def complete(self, values: Mapping[str, Value]) -> Configuration:
        """``values`` with the defaults of what else exists beside them, and without what does not."""
        result: dict[str, Value] = {}
        for name, parameter in self.parameters.items():
            if parameter.exists(result):
                result[name] = values.get(name, parameter.default)
        return Configuration(result)

    def suggest(self, trial: Trial) -> Configuration:
        """Ask ``trial`` for every parameter that exists beside the values proposed before it."""
        values: dict[str, Value] = {}
        for name, parameter in self.parameters.items():
            if parameter.exists(values):
                values[name] = _suggest(trial, name, parameter)
        return Configuration(values)

    @property
    def searched(self) -> Space:
        """The parameters that can exist and can take more than one value."""
        return {
            name: entry
            for name, entry in self.parameters.items()
            if not entry.distribution.single() and True in self._presence(name)
        }

    @property
    def conditional(self) -> tuple[str, ...]:
        """The searched parameters that exist in some trials only."""
        return tuple(name for name in self.searched if False in self._presence(name))

    def _presence(self, name: str) -> set[bool]:
        """Whether a parameter exists: always, never, or both."""
        found = {True}
        for other, values in self.parameters[name].when.items():
            matches = {choice in values for choice in steps(self.parameters[other].distribution) or ()}
            upstream = self._presence(other)
            found = {a and b and c for a in found for b in matches for c in upstream}
        return found


def _suggest(trial: Trial, name: str, parameter: Parameter) -> Value:
    distribution = parameter.distribution
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    if isinstance(distribution, IntDistribution):
        return trial.suggest_int(
            name, distribution.low, distribution.high, step=distribution.step, log=distribution.log
        )
    assert isinstance(distribution, FloatDistribution)
    return trial.suggest_float(name, distribution.low, distribution.high, step=distribution.step, log=distribution.log)


def search_space(
    loss: str | LossPart,
    training: TrainingConfig,
    wishes: Mapping[str, Any],
    training_wishes: Mapping[str, Any],
    *,
    checked: bool = True,
) -> SearchSpace:
    """The space of ``loss`` under a search file's ``space.<loss>``, whose ``training`` is for it alone, and
    ``space.training``.

    ``loss`` is a part, a name or an import path. Values that are wished for are tried on the class of the loss, which
    imports torch; for a search that was accepted before, ``checked=False`` leaves that out.

    A training parameter is searched only where it is asked for, and the proxies' learning rate only where there are
    proxies.

    Raises:
        Mistakes: unknown names, values outside a domain, ranges that are none; all of them at once.
    """

    part = loss_part(loss) if isinstance(loss, str) else loss

    def refuse_loss(name: str, value: Value) -> None:
        if checked:
            _build(part, {name: value})

    def refuse_training(name: str, value: Value) -> None:
        replace(training, **{name: value})  # type: ignore[arg-type]

    declared = declared_space(part)
    known = training_space(training, part.key)
    own = wishes.get(TRAINING, {})
    if not isinstance(own, Mapping):
        raise Mistakes(f"space.{part.name}.{TRAINING} must be keys and values, such as {{lr: …}}; it is {own!r}.")
    asked = {name: wish for name, wish in training_wishes.items() if name in known or name not in SEARCHABLE}
    of_loss_alone = {name: wish for name, wish in wishes.items() if name != TRAINING}
    mistakes: list[str] = []
    of_loss = _override_all(part.name, declared, of_loss_alone, declared, refuse_loss, mistakes)
    of_training = _override_all(TRAINING, known, asked, SEARCHABLE, refuse_training, mistakes)
    of_training |= _override_all(f"{part.name}.{TRAINING}", known, own, known, refuse_training, mistakes)
    raise_if_any(mistakes)
    declared_training = {name: parameter for name, parameter in known.items() if name in of_training}
    return SearchSpace(
        parameters={**declared, **of_loss, **_prefixed({name: of_training[name] for name in declared_training})},
        declared={**declared, **_prefixed(declared_training)},
    )


def _build(part: LossPart, hyperparameters: Mapping[str, Value]) -> None:
    """Build the loss as small as can be: it refuses what lies outside its domain."""
    loss = LOSSES[part.key]
    try:
        loss(num_classes=2, embedding_dim=2, **hyperparameters)
    except ValueError:
        raise
    except Exception as error:
        if part.path is None and not isinstance(error, MemoryError | RuntimeError):
            raise
        if part.path is None:  # PyTorch's way to say that memory is short
            raise Mistakes(f"{dict(hyperparameters)} cannot be built ({error}); give smaller values.") from error
        raise Mistakes(f"{part.path} raises {type(error).__name__}: {error}; mend its constructor.") from error


def _prefixed(space: Space) -> Space:
    return {PREFIX + name: parameter for name, parameter in space.items()}


def _override_all(
    section: str,
    declared: Space,
    wishes: Mapping[str, Any],
    known: Iterable[str],
    refuse: Callable[[str, Value], None],
    mistakes: list[str],
) -> dict[str, Parameter]:
    """Those of ``declared`` that ``wishes`` name, as they wish; a wish for what is not ``known`` is a mistake."""
    names = list(known)
    mistakes += [
        f"space.{section}.{name}: there is no such hyperparameter to search; there are {', '.join(names)}."
        for name in wishes
        if name not in names
    ]
    parameters = {}
    for name in wishes:
        if name in declared:
            try:
                parameters[name] = override(
                    declared[name], wishes[name], name=f"{section}.{name}", refuse=partial(refuse, name)
                )
            except Mistakes as error:
                mistakes += error.sentences
    return parameters
