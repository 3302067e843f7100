"""The ``training_by_loss`` section: where a loss is trained otherwise than the ``training`` section says."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from search.config.sections.section import Section
from search.config.validation.validation_errors import Validation, validate
from trainables.mistakes import suggestion
from trainables.training.config import TrainingConfig

TrainingByLoss = dict[str, dict[str, Any]]
"""For each loss the settings that are its own."""

SHARED = ("epochs", "image_size", "resize_size", "resize_square", "augment")
"""The same for all losses of a search: rungs and budgets count in the epochs, and the images are stored once."""


class _Settings(Section):
    """A section that can be read and spoken of by itself."""

    training: TrainingConfig


def training_of_loss(training: TrainingConfig, own: Mapping[str, Any]) -> TrainingConfig:
    """``training`` with the settings ``own`` over it; the keys of a schedule are united.

    Raises:
        Mistakes: all that is wrong with ``own``.
    """
    return _over(training, own).result().training


def _over(training: TrainingConfig, own: Mapping[str, Any]) -> Validation[_Settings]:
    content = asdict(training)
    for name, value in own.items():
        under = content.get(name)
        content[name] = {**under, **value} if isinstance(under, dict) and isinstance(value, dict) else value
    return validate(_Settings, {"training": content})


def training_mistakes(by_loss: TrainingByLoss, training: TrainingConfig, losses: Sequence[str]) -> Iterator[str]:
    """What is wrong with the settings ``by_loss`` of a search for ``losses``."""
    for loss, own in by_loss.items():
        key = f"training_by_loss.{loss}"
        if loss not in losses:
            yield (
                f"{key}: this is none of the search's losses ({', '.join(losses)}){suggestion(loss, losses)}; add it "
                "to losses or remove it."
            )
            continue
        for name in SHARED:
            if name in own:
                yield f"{key}.{name}: it is the same for all losses of a search, and here {own[name]!r}; remove it."
        alone = {name: value for name, value in own.items() if name not in SHARED}
        for sentence in _over(training, alone).mistakes:
            _, where, what = re.split(r"^training([\w.]*)", sentence.replace("did you mean training.", "did you mean "))
            # What is said of a setting that is not its own is said of the training section too.
            others = {field.name for field in fields(TrainingConfig)} - own.keys()
            rests = " over training" if not where and others & set(re.findall(r"\w+", what)) else ""
            yield f"{key}{where}{rests}{what}"
