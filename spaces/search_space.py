"""The search space of one loss in one search: its declared space, overridden by the search file.

:func:`search_space` combines a loss's declared space with the ``space`` section of a search file;
:class:`SearchSpace` proposes params from it; :func:`override` applies one entry of the section to one parameter.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, product
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from optuna import Trial

from spaces.losses import declared_space, space_of_trainable
from spaces.space import MODEL, TRAINING, Choice, Float, Int, Params, Range, Space, Value, value_text
from trainables.common.errors import InvalidInput, Mistake, raise_if_any, suggestion
from trainables.common.ranges import is_number
from trainables.losses import LOSSES, LossPart, loss_part, loss_row
from trainables.models.config import BACKBONE, HEAD_INIT, HEADS, MOST_DIMENSIONS, POOLING, ModelConfig
from trainables.training.training_config import TrainingConfig

SEARCHABLE: Mapping[str, Mapping[str, Range]] = {
    TRAINING: {
        "lr": Float(1e-6, 1.0, log=True),
        "head_lr": Float(1e-6, 1.0, log=True),
        "layer_decay": Float(0.3, 1.0),
        "proxy_lr": Float(1e-6, 10.0, log=True),
        "weight_decay": Float(1e-8, 1.0, log=True),
        "clip_grad": Float(1e-3, 1e3, log=True),
        "warmup_epochs": Int(0, 1000),
    },
    MODEL: {
        "embedding_dim": Int(1, MOST_DIMENSIONS, log=True),
        "pooling": Choice(tuple(POOLING)),
        "freeze": Choice((None, BACKBONE)),
        "lora.rank": Int(1, MOST_DIMENSIONS, log=True),
        "lora.alpha": Float(1e-3, 1e3, log=True),
        "layer_norm": Choice((False, True)),
        "head": Choice(HEADS),
        "head_dropout": Float(0.0, 0.9),
        "head_init": Choice(tuple(HEAD_INIT)),
    },
}
"""Searchable fields of the sections training and model."""

SECTIONS = tuple(SEARCHABLE)
"""Keys in ``space`` (for all losses) and in ``space.<loss>`` (for one) of parameters that are not the loss's."""


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """Parameters searched for one loss: its own, then those of sections as ``training.<name>``, ``model.<name>``."""

    parameters: Space
    declared: Space

    @property
    def clipped(self) -> tuple[str, ...]:
        """Parameters of trial 0 whose declared default is excluded by the search file."""
        return tuple(name for name, value in self.default.items() if value != self.declared[name].default)

    @property
    def default(self) -> Params:
        """Params of trial 0: the papers' defaults, or the nearest values that the search file allows."""
        return self.complete({})

    def complete(self, values: Mapping[str, Value]) -> Params:
        """Return ``values`` with defaults for missing parameters, without parameters that do not exist for them."""
        result: dict[str, Value] = {}
        for name, parameter in self.parameters.items():
            if parameter.exists(result):
                result[name] = values.get(name, parameter.default)
        return Params(result)

    def suggest(self, trial: Trial) -> Params:
        """Suggest every parameter that exists given the values suggested before it."""
        values: dict[str, Value] = {}
        for name, parameter in self.parameters.items():
            if parameter.exists(values):
                values[name] = parameter.suggest(trial, name)
        return Params(values)

    @property
    def searched(self) -> Space:
        """Parameters that can exist and have more than one value."""
        return {
            name: entry
            for name, entry in self.parameters.items()
            if not entry.is_single and True in self._presence(name)
        }

    @property
    def conditional(self) -> tuple[str, ...]:
        """Searched parameters that exist only in some trials."""
        return tuple(name for name in self.searched if False in self._presence(name))

    def _presence(self, name: str) -> set[bool]:
        """Return {True} if a parameter always exists, {False} if never, both if it depends on others."""
        found = {True}
        for other, values in self.parameters[name].when.items():
            matches = {choice in values for choice in self.parameters[other].steps or ()}
            upstream = self._presence(other)
            found = {a and b and c for a in found for b in matches for c in upstream}
        return found


def search_space(
    loss: str | LossPart,
    training: TrainingConfig,
    wishes: Mapping[str, Any],
    shared: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    *,
    model: ModelConfig | None = None,
    checked: bool = True,
) -> SearchSpace:
    """Return the search space of ``loss``, a part, a name or an import path.

    A parameter of a section is searched only if a wish names it, and the proxies' learning rate only if there are
    proxies.

    Args:
        loss: the loss.
        training, model: these sections of the search file, for the defaults of their parameters.
        wishes: ``space.<loss>`` of the search file; its keys ``training`` and ``model`` hold wishes for this loss only.
        shared: ``space.training`` and ``space.model`` of the search file, by section.
        checked: build the loss with each wished value, which imports torch. False for a search already accepted.

    Raises:
        InvalidInput: unknown names, values outside a domain, malformed ranges; all of them at once.
    """
    part = loss_part(loss) if isinstance(loss, str) else loss

    def refuse_setting(name: str, value: Value) -> None:
        replace(training, **{name: value})  # type: ignore[arg-type]

    declared = declared_space(part)
    of_loss_alone = {name: wish for name, wish in wishes.items() if name not in SECTIONS}
    mistakes: list[str] = []
    refuse_param = partial(_build, part) if checked else accept
    of_loss = _override_all(part.name, declared, of_loss_alone, declared, refuse_param, mistakes)
    parameters, unchanged = {**declared, **of_loss}, dict(declared)
    config = ModelConfig() if model is None else model
    for section, known in {TRAINING: training_space(training, part.key), MODEL: model_space(config)}.items():
        searchable, own = SEARCHABLE[section], wishes.get(section, {})
        if not isinstance(own, Mapping):
            mistakes.append(f"space.{part.name}.{section} must be keys and values, such as {{lr: …}}; it is {own!r}.")
            continue
        refuse = refuse_setting if section == TRAINING else accept  # those of the model are checked together
        asked = {
            name: wish for name, wish in shared.get(section, {}).items() if name in known or name not in searchable
        }
        found = _override_all(section, known, asked, searchable, refuse, mistakes)
        found |= _override_all(f"{part.name}.{section}", known, own, known, refuse, mistakes)
        parameters |= {f"{section}.{name}": found[name] for name in known if name in found}
        unchanged |= {f"{section}.{name}": known[name] for name in found}
    space = SearchSpace(parameters=parameters, declared=unchanged)
    if not mistakes:
        mistakes += _impossible_networks(space, config)
    raise_if_any(mistakes)
    return space


def search_space_of_trainable(part: LossPart, wishes: Mapping[str, Any]) -> SearchSpace:
    """Return the search space of a user-defined training, whose class sees the values of ``wishes`` when it trains."""
    assert part.path is not None
    declared = space_of_trainable(part.path)
    mistakes: list[str] = []
    wished = _override_all(part.name, declared, wishes, declared, accept, mistakes)
    raise_if_any(mistakes)
    return SearchSpace(parameters={**declared, **wished}, declared=declared)


def accept(name: str, value: Value) -> None:
    """Refuse no value."""


MOST_NETWORKS = 4096
"""Limit of the combinations of a network's settings that are checked."""


def _impossible_networks(space: SearchSpace, model: ModelConfig) -> Iterator[str]:
    """Yield a sentence for the first combination of searched settings that is not a network."""
    searched = {name: entry.ends for name, entry in space.parameters.items() if name.startswith(f"{MODEL}.")}
    for combination in islice(product(*searched.values()), MOST_NETWORKS):
        params = Params(dict(zip(searched, combination, strict=True))).model
        try:
            model.changed(params)
        except InvalidInput as error:
            shown = ", ".join(f"{name}: {value_text(value)}" for name, value in params.items())
            yield from (f"space.{MODEL} allows {{{shown}}}: {sentence}" for sentence in error.sentences)
            return


def _build(part: LossPart, name: str, value: Value) -> None:
    """Build the loss at its smallest size, so that it rejects a value outside its domain."""
    loss, params = LOSSES[part.key], {name: value}
    try:
        loss(num_classes=2, embedding_dim=2, **params)
    except ValueError:
        raise
    except Exception as error:
        if part.path is None and not isinstance(error, MemoryError | RuntimeError):
            raise
        if part.path is None:  # PyTorch raises RuntimeError if memory runs out
            raise InvalidInput(f"{params} cannot be built ({error}); give smaller values.") from error
        raise InvalidInput(f"{part.path} raises {type(error).__name__}: {error}; fix its constructor.") from error


def _override_all(
    section: str,
    declared: Space,
    wishes: Mapping[str, Any],
    known: Iterable[str],
    refuse: Callable[[str, Value], None],
    mistakes: list[str],
) -> dict[str, Range]:
    """Return the parameters of ``declared`` named in ``wishes``, overridden; a name not in ``known`` is a mistake."""
    names = list(known)
    mistakes += [
        f"space.{section}.{name}: there is no such hyperparameter to search{suggestion(name, names)}; there are "
        f"{', '.join(names)}."
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
            except InvalidInput as error:
                mistakes += error.sentences
    return parameters


def training_space(training: TrainingConfig, loss: str) -> Space:
    """Return the searchable training parameters of ``loss`` whose default in ``training``, or its row, is not None."""
    defaults = {name: getattr(training, name) for name in SEARCHABLE[TRAINING]}
    defaults["head_lr"] = training.head_lr or training.lr
    defaults["proxy_lr"] = training.proxy_lr or loss_row(loss).proxy_lr
    return {
        name: _including(entry, defaults[name])
        for name, entry in SEARCHABLE[TRAINING].items()
        if defaults[name] is not None
    }


def model_space(model: ModelConfig) -> Space:
    """Return the searchable parameters of the network, with defaults from ``model``."""
    found = {}
    for name, entry in SEARCHABLE[MODEL].items():
        default = attrgetter(name)(model)
        if isinstance(entry, Float) and default is None:
            entry = Choice((None,))  # to be replaced by a list of choices
        elif isinstance(entry, Choice) and not entry.contains(default):
            continue  # freeze: a list of patterns
        found[name] = replace(entry, default=default, source="the model section")
    return found


def _including(declared: Range, default: float) -> Range:
    """Widen the declared range to include the default; on a log scale a default of 0 becomes the lower end."""
    assert isinstance(declared, Float), "all of the training section are numbers"
    low = declared.low if declared.log and default <= 0 else min(declared.low, default)
    high, source = max(declared.high, default), "the training section"
    return replace(declared, low=low, high=high, default=max(low, default), source=source)


RANGE_KEYS = ("low", "high", "step", "log")
MOST_STEPS = 1_000_000
"""Limit on the steps of a range, since grid-like samplers list them."""


def override(declared: Range, wish: Any, *, name: str, refuse: Callable[[Value], None]) -> Range:
    """Return ``declared`` restricted, fixed or widened by ``wish``: a range, a list of choices, or one value.

    ``refuse`` raises ``ValueError`` for a value outside the parameter's domain; it is called with every choice, or both
    ends of a range. The default becomes the nearest allowed value; a paper's grid is replaced by the wish's steps or
    choices.

    Raises:
        InvalidInput: the wish is malformed or leaves the domain.
    """
    choices = wish if isinstance(wish, list) else [wish]
    found = _range(declared, wish, name) if isinstance(wish, Mapping) else Choice(choices)
    try:
        _ = found.distribution
    except InvalidInput as error:
        raise InvalidInput(f"space.{name}: {error}") from error
    if isinstance(found, Float) and found.step and (found.high - found.low) / found.step >= MOST_STEPS:
        text = f": it has more than {MOST_STEPS:,} steps, from {found.low} to {found.high}"
        raise InvalidInput(Mistake(f"space.{name}", text, "give a larger step or a smaller range"))
    mistakes: list[str] = []
    for value in dict.fromkeys(found.ends):
        try:
            refuse(value)
        except ValueError as error:
            for mistake in map(Mistake.of, getattr(error, "sentences", (str(error),))):
                own = mistake.key == name.rpartition(".")[2]
                mistakes.append(mistake.at(f"space.{name}") if own else f"space.{name}: {mistake}")
    raise_if_any(mistakes)
    return replace(found, default=found.nearest(declared.default), source=declared.source, when=declared.when)


def _range(declared: Range, wish: Mapping[str, Any], name: str) -> Float:
    if unknown := [key for key in wish if key not in RANGE_KEYS]:
        raise InvalidInput(
            f"space.{name}: a range has the keys {', '.join(RANGE_KEYS)}, not {', '.join(map(str, unknown))}."
        )
    ends: list[Any] = list(declared.ends)
    if not all(map(is_number, ends)):
        raise InvalidInput(
            f"space.{name}: a range needs numbers, and this is one of {', '.join(map(repr, ends))}; give a list of "
            "choices."
        )
    is_whole = isinstance(declared, Int) or (isinstance(declared, Choice) and all(isinstance(end, int) for end in ends))
    bounds = {"low": min(ends), "high": max(ends), "step": 1 if is_whole else None, "log": False}
    bounds |= {key: value for key, value in wish.items() if key != "step" or value is not None}
    numbers = [bounds["low"], bounds["high"], *([] if bounds["step"] is None else [bounds["step"]])]
    if not all(map(is_number, numbers)) or not isinstance(bounds["log"], bool):
        raise InvalidInput(
            f"space.{name}: low, high and step must be numbers and log true or false; it is {dict(wish)}."
        )
    return (Int if is_whole else Float)(**bounds)
