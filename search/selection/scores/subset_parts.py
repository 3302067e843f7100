"""Parts of metrics that are of a part of the test classes, among those that are of all of them.

Shapes: N test images, S those of the part's classes.
"""

from collections.abc import Mapping, Sequence

import torch

from trainables.metrics.table import is_retrieval, split_subset


def by_subset(names: Sequence[str]) -> dict[str | None, list[str]]:
    """The metrics ``names`` by the part of the test classes that they are of, without its name; None for all."""
    found: dict[str | None, list[str]] = {}
    for name in names:
        metric, subset = split_subset(name)
        found.setdefault(subset, []).append(metric)
    return found


def images_of(
    subset: str | None,
    labels_N: torch.Tensor,
    class_names: Sequence[str],
    test_subsets: Mapping[str, Sequence[str]],
) -> torch.Tensor:
    """Which images are of the part's classes, bool [N]; ``labels_N`` are positions in ``class_names``."""
    if subset is None:
        return torch.ones(len(labels_N), dtype=torch.bool)
    of_subset = frozenset(test_subsets[subset])
    return torch.tensor([name in of_subset for name in class_names])[labels_N]


def subset_name(name: str, subset: str | None) -> str:
    """What a metric, or one of its parts, is called where it is of a part of the test classes."""
    return name if subset is None else f"{name}-{subset}"


def spread_parts(parts: Mapping[str, torch.Tensor], subset: str | None, of_N: torch.Tensor) -> dict[str, torch.Tensor]:
    """The parts that were computed of the images ``of_N``, as they are kept beside those of all images.

    Scores of queries become [N], NaN where an image is none of them.
    """
    spread: dict[str, torch.Tensor] = {}
    for name, part in parts.items():
        if subset is not None and is_retrieval(name):
            part_N = torch.full((len(of_N),), torch.nan, dtype=part.dtype)
            part_N[of_N] = part
            spread[subset_name(name, subset)] = part_N
        else:
            spread[subset_name(name, subset)] = part
    return spread


def gathered_parts(kept: Mapping[str, torch.Tensor], subset: str | None, of_N: torch.Tensor) -> dict[str, torch.Tensor]:
    """The parts of the images ``of_N``, as they were before :func:`spread_parts`."""
    parts: dict[str, torch.Tensor] = {}
    for name, part in kept.items():
        metric, of_part = split_subset(name)
        if of_part == subset:
            parts[metric] = part[of_N] if subset is not None and is_retrieval(metric) else part
    return parts
