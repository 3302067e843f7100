"""The schedule of faults, drawn from a seed so that a run can be repeated."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from soak.faults import FAULTS

AT_START = 0.3
"""The share of faults during the start of a driver or its trainers, instead of between epochs."""
START_S = 12.0
"""Maximum delay of these faults; a twelfth of it once epochs are reported."""
EPOCHS = (1, 6)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One fault: its delay in further epochs (0: none) and seconds, its duration and the choice of its target."""

    fault: str
    after_epochs: int
    after_s: float
    lasts_s: float
    choice: float


def schedule(seed: int, scenario: str, faults: Sequence[str], count: int) -> list[Planned]:
    """Return ``count`` faults in random order, with every kind of ``faults`` equally often."""
    drawn = random.Random(f"{seed}/{scenario}")
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += drawn.sample(faults, len(faults))
    return [_planned(drawn, kind) for kind in kinds[:count]]


def _planned(drawn: random.Random, kind: str) -> Planned:
    at_start = drawn.random() < AT_START
    return Planned(
        fault=kind,
        after_epochs=0 if at_start else drawn.randint(*EPOCHS),
        after_s=round(drawn.uniform(0, START_S if at_start else 0.5), 3),
        lasts_s=round(drawn.uniform(*FAULTS[kind].lasts_s), 3),
        choice=math.floor(1000 * drawn.random()) / 1000,
    )
