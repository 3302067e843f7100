"""Groups or periods in the place of classes: what a split divides, seals and shows if it is not by class.

A group is a user, a document, a speaker, a machine; a period is a day, or a number such as a year. The class of an item
remains as its target, so all parts have the same classes, as a classifier needs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from trainables.data.dataset import Dataset, sorted_classes
from trainables.mistakes import Mistakes, counted, listed, raise_if_any, suggestion

if TYPE_CHECKING:
    import numpy as np

CLASS, GROUP, TIME = "class", "group", "time"
NOUNS = {CLASS: ("class", "classes"), GROUP: ("group", "groups"), TIME: ("period", "periods")}
"""What a part of a split by class, group or time consists of, one and several."""

SHOWN = 3

Moment = float | date
Parts = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""The units that train, validate and test."""


@dataclass(frozen=True, kw_only=True)
class UnitDataset(Dataset):
    """The items of ``source``, whose classes are their groups or periods.

    Attributes:
        source: the data set with the items and their classes.
        by: "group" or "time".
        until: of a split by time, where validation begins.
        test_from: where the test begins.
        validation: of a split by group, the groups that validate; empty if the rule of classes draws them.
        test: the groups that test; empty if the rule of classes divides them.
    """

    summary: ClassVar[str] = "groups or periods of another data set"
    publisher: ClassVar[str] = "as its source"
    layout: ClassVar[str] = ""

    source: Dataset
    by: str
    until: str | int | float | None = None
    test_from: str | int | float | None = None
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Return the options alone, since every trial is sent with its data set."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Map groups, sorted by name, or periods in their order to the keys of their items.

        Raises:
            Mistakes: items have no group or no time, or one that cannot be read.
        """
        return self._units

    @cached_property
    def _units(self) -> dict[str, tuple[str, ...]]:
        unit_of = self._unit_of
        found: dict[str, list[str]] = {}
        for key in self.targets():
            found.setdefault(unit_of[key], []).append(key)
        names = sorted(found, key=self._moments.__getitem__) if self.by == TIME else sorted_classes(found)
        return {name: tuple(found[name]) for name in names}

    @cached_property
    def _unit_of(self) -> Mapping[str, str]:
        """The group or period of each item."""
        found: Mapping[str, Any] = self.source.times() if self.by == TIME else self.source.groups()
        what = self.by
        keys = list(self.targets())
        missing = [key for key in keys if key not in found]
        if len(missing) == len(keys):
            raise Mistakes(
                f"split.by is {self.by}, and no item of the data set has a {what}; give {what}s (the array {what}s of "
                f"a file of embeddings, the column {what} of a list of images, the method {what}s of a class), or set "
                "it to class."
            )
        if missing:
            raise Mistakes(
                f"split.by is {self.by}, and {counted(len(missing), 'item has', 'items have')} no {what}: "
                f"{listed(missing, shown=SHOWN)}; give each one."
            )
        return {key: _period(found[key]) if self.by == TIME else str(found[key]) for key in keys}

    @cached_property
    def _moments(self) -> dict[str, Moment]:
        """The moment of each period."""
        moments = {name: _moment(name) for name in set(self._unit_of.values())}
        if len({type(moment) for moment in moments.values()}) > 1:
            dates = [name for name, moment in moments.items() if isinstance(moment, date)]
            numbers = [name for name, moment in moments.items() if not isinstance(moment, date)]
            raise Mistakes(f"The times are dates ({min(dates)}) and numbers ({min(numbers)}); give one kind.")
        return moments

    def given_parts(self) -> Parts | None:
        """Return the units of each part if they are given, None if the rule of classes divides them.

        Raises:
            Mistakes: a part would be empty, or is given in other words than those of the data set.
        """
        if self.by == TIME:
            return self._by_time()
        if not self.test:
            return None
        names, given = list(self.classes()), {"validation": self.validation, "test": self.test}
        sentences = [
            f"split.{part}: there is no group {listed(unknown, shown=SHOWN)}{suggestion(unknown[0], names)}; name "
            "groups of the data set."
            for part, of_part in given.items()
            if (unknown := [name for name in of_part if name not in names])
        ]
        if both := [name for name in self.validation if name in self.test]:
            sentences.append(f"split: {listed(both, shown=SHOWN)} validates and tests; keep it in one part.")
        raise_if_any(sentences)
        parts = _in_parts(names, lambda name: 2 if name in self.test else int(name in self.validation))
        if not parts[0]:
            raise Mistakes("split: all groups validate or test, and none is left to train; name fewer.")
        return parts

    def _by_time(self) -> Parts:
        moments, bounds = self._moments, {"until": self.until, "test_from": self.test_from}
        kind = type(next(iter(moments.values())))
        found, sentences = [], []
        for key, bound in bounds.items():
            moment = _moment_or_none(str(bound))
            if moment is None or type(moment) is not kind:
                example = next(iter(self.classes()))
                sentences.append(f"split.{key} is {bound!r}, and the times are such as {example}; give one like these.")
            else:
                found.append(moment)
        raise_if_any(sentences)
        until, test_from = found
        if not until < test_from:  # type: ignore[operator]
            raise Mistakes(
                f"split.until is {self.until} and test_from {self.test_from}; validation begins at until and ends "
                "before test_from, so give a later test_from."
            )
        parts = _in_parts(
            list(self.classes()),
            lambda name: int(moments[name] >= until) + int(moments[name] >= test_from),  # type: ignore[operator]
        )
        first, *_, last = self.classes()
        raise_if_any(
            [
                f"split: no item {what}; the times are from {first} to {last}: give other dates or numbers."
                for part, what in zip(
                    parts,
                    (
                        f"is before until ({self.until})",
                        f"is between until ({self.until}) and test_from ({self.test_from})",
                        f"is at or after test_from ({self.test_from})",
                    ),
                    strict=True,
                )
                if not part
            ]
        )
        return parts

    def targets(self) -> Mapping[str, str]:
        """Map item keys to their classes in the source."""
        return self._targets

    @cached_property
    def _targets(self) -> dict[str, str]:
        return {key: name for name, keys in self.source.classes().items() for key in keys}

    def target_names(self) -> tuple[str, ...]:
        """Return the classes of the source, the same for all parts."""
        return tuple(self.source.classes())

    def identity(self) -> str:
        return f"{self.source.identity()}, by {self.by}"

    def stamp(self, key: str) -> str:
        return self.source.stamp(key)

    def read(self, key: str) -> "np.ndarray":
        return self.source.read(key)

    def features(self) -> int | None:
        return self.source.features()

    @property
    def of_images(self) -> bool:
        return self.source.of_images

    def picture(self, key: str) -> "np.ndarray | None":
        return self.source.picture(key)

    def damage(self, key: str) -> str | None:
        return self.source.damage(key)


def source_of(dataset: Dataset) -> Dataset:
    """Return the data set that reads the items of ``dataset``: of groups and periods, their source."""
    return dataset.source if isinstance(dataset, UnitDataset) else dataset


def _in_parts(names: Sequence[str], part_of: Any) -> Parts:
    parts: tuple[list[str], list[str], list[str]] = ([], [], [])
    for name in names:
        parts[part_of(name)].append(name)
    training, validation, test = map(tuple, parts)
    return training, validation, test


def _period(time: str | float) -> str:
    """Return the period of a time: a number itself, or the day of a date or of a date with a time of day."""
    text = str(time).strip()
    if _number(text) is not None:
        return text
    try:
        return datetime.fromisoformat(text).date().isoformat()
    except ValueError:
        raise Mistakes(
            f"The time {text!r:.60} is neither a number nor a date such as 2024-03-01; correct it."
        ) from None


def _moment(period: str) -> Moment:
    found = _moment_or_none(period)
    assert found is not None, "periods are numbers or days"
    return found


def _moment_or_none(text: str) -> Moment | None:
    """Return the number or the day that ``text`` is; None if it is neither."""
    if (number := _number(text)) is not None:
        return number
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
