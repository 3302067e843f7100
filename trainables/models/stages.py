"""The stages of a backbone, from its stem to its top, which layer-wise learning rates and gradual unfreezing count."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import nn

Item = tuple[str, ...]
"""The path of a module or parameter: the parts of its name."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Consecutive parts of a backbone, named after the first of them, and all their ``parameters``."""

    name: str
    parameters: tuple[nn.Parameter, ...]


def stages(backbone: nn.Module) -> list[Stage]:
    """Return the stages of ``backbone``, which together hold each of its parameters once.

    A network is a series of parts whose names differ in a number (``layer1``, ``blocks.0``, ``encoder_layer_0``), with
    others before, between and behind them. The series is searched for downwards from the whole network, each time
    inside the largest part, and the one with the most parameters is taken. Each number begins a stage
    (``inception3a`` and ``inception3b`` are one); parts before the series are the first stage, the stem; all others,
    and those without a matrix, such as normalisation, belong to the stage before them. Without a series the parts are
    the stages.
    """
    parameters = dict(backbone.named_parameters())
    sizes = {tuple(name.split(".")): parameter.numel() for name, parameter in parameters.items()}
    matrices = {tuple(name.split(".")) for name, parameter in parameters.items() if parameter.ndim > 1}
    items = list(_children(sizes, ()))
    main = _largest_series(items, sizes)
    while len({_numbered(item) for item in main}) == 1 and (inside := _inside_of_most(main, sizes)):
        position = items.index(main[0])
        items[position : position + 1] = inside
        main = _largest_series(items, sizes)
    if len({_numbered(item) for item in main}) == 1:
        main = items
    begun: list[tuple[Item, list[Item]]] = []
    current: Item | None = None
    for item in items:
        begins = item in main and _numbered(item) != current and any(_is_in(path, item) for path in matrices)
        if begins:
            current = _numbered(item)
        if begins or not begun:
            begun.append((item, []))
        begun[-1][1].append(item)
    return [
        Stage(
            name=".".join(first),
            parameters=tuple(
                parameters[".".join(path)] for item in parts for path in sizes if _is_in(path, item)
            ),
        )
        for first, parts in begun
    ]  # fmt: skip


def _children(sizes: dict[Item, int], parent: Item) -> Iterator[Item]:
    depth = len(parent)
    return iter(dict.fromkeys(path[: depth + 1] for path in sizes if _is_in(path, parent) and len(path) > depth))


def _is_in(path: Item, item: Item) -> bool:
    return path[: len(item)] == item


def _size(item: Item, sizes: dict[Item, int]) -> int:
    return sum(size for path, size in sizes.items() if _is_in(path, item))


def _numbered(item: Item) -> Item:
    """Return ``item`` up to the first number in the last part of its name."""
    found = re.match(r"\D*\d+", item[-1])
    return (*item[:-1], found[0]) if found else item


def _largest_series(items: Sequence[Item], sizes: dict[Item, int]) -> list[Item]:
    """Return the items whose names agree up to their first number and that together have the most parameters."""
    series: dict[Item, list[Item]] = {}
    for item in items:
        series.setdefault((*item[:-1], re.split(r"\d", item[-1])[0]), []).append(item)
    return max(series.values(), key=lambda found: sum(_size(item, sizes) for item in found), default=[])


def _inside_of_most(main: Sequence[Item], sizes: dict[Item, int]) -> list[Item]:
    """Return the parts of a single item if it has some and holds more than half of all parameters."""
    if len(main) != 1 or 2 * _size(main[0], sizes) <= sum(sizes.values()):
        return []
    return list(_children(sizes, main[0]))
