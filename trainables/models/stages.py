"""The stages of a backbone, from its stem to its top, which layer-wise learning rates and gradual unfreezing count."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

Path = tuple[str, ...]
"""The parts of the name of a module or a parameter."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Consecutive parts of a backbone, named after the first of them, and all their ``parameters``."""

    name: str
    parameters: tuple[nn.Parameter, ...]


def stages(backbone: nn.Module) -> list[Stage]:
    """Return the stages of ``backbone``, which together hold each of its parameters once.

    A network is a series of parts whose names differ in a number (``layer1``, ``blocks.0``, ``encoder_layer_0``), with
    others before, between and behind them. The series is the one with the most matrices; a single part that holds more
    than half of all is searched for it instead. Each number of the series begins a stage (``inception3a`` and
    ``inception3b`` are one). Parts before the series are the first stage, the stem; all others, and those without a
    matrix, such as normalisation, belong to the stage before them. Without a series the parts are the stages.
    """
    parameters = {tuple(name.split(".")): parameter for name, parameter in backbone.named_parameters()}
    matrices = [path for path, parameter in parameters.items() if parameter.ndim > 1]
    parts = _inside((), parameters)
    series = _series(parts, matrices)
    while (
        len(series) == 1 and 2 * _count(series, matrices) > len(matrices) and (inside := _inside(series[0], parameters))
    ):
        position = parts.index(series[0])
        parts[position : position + 1] = inside
        series = _series(parts, matrices)
    if len({_numbered(part) for part in series}) == 1:
        series = parts
    found: list[list[Path]] = []
    begun = None
    for part in parts:
        begins = part in series and _numbered(part) != begun and _count([part], matrices) > 0
        if begins:
            begun = _numbered(part)
        if begins or not found:
            found.append([])
        found[-1].append(part)
    return [
        Stage(
            name=".".join(of_stage[0]),
            parameters=tuple(p for part in of_stage for path, p in parameters.items() if _is_in(path, part)),
        )
        for of_stage in found
    ]  # fmt: skip


def _is_in(path: Path, part: Path) -> bool:
    return path[: len(part)] == part


def _inside(part: Path, paths: Iterable[Path]) -> list[Path]:
    """Return the parts of ``part``, in order."""
    depth = len(part) + 1
    return list(dict.fromkeys(path[:depth] for path in paths if _is_in(path, part) and len(path) >= depth))


def _count(parts: Sequence[Path], matrices: Sequence[Path]) -> int:
    return sum(_is_in(path, part) for path in matrices for part in parts)


def _numbered(part: Path) -> Path:
    """Return ``part`` up to the first number in the last part of its name."""
    found = re.match(r"\D*\d+", part[-1])
    return (*part[:-1], found[0]) if found else part


def _series(parts: Sequence[Path], matrices: Sequence[Path]) -> list[Path]:
    """Return the parts whose names agree up to their first number and that together have the most matrices."""
    series: dict[Path, list[Path]] = {}
    for part in parts:
        series.setdefault((*part[:-1], re.split(r"\d", part[-1])[0]), []).append(part)
    return max(series.values(), key=lambda found: _count(found, matrices), default=[])
