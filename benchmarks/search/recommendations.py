"""Recommendations after replayed searches: a loss, or a network without training.

A recommendation compares the chosen configurations of some losses with the features as they are and whitened, on the
classes that validate the confirmation. Its regret is what the best of all these models is worth more on the test
classes. ``networks.json`` has the values of the features of each division of the tables; those of two halves come from
a whitening of the other half each, as in a search.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.search.replay import OBJECTIVE, on_half
from benchmarks.search.table import Table
from search.difference import Basis
from search.records import Confirmation, recommend

Floats = NDArray[np.float64]

BETTER_BY = {
    "a loss that is 1 SE better (until 0.2)": -1.0,
    "the highest mean": 0.0,
    "a loss, unless a network is 1 SE better (default)": 1.0,
    "a loss, unless a network is 2 SE better": 2.0,
    "always a loss": math.inf,
}
"""By how many standard errors a network must be better than the best loss to be recommended."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network without training on one division: its value on each class of the halves, and on the test classes."""

    halves: Floats
    test: float


def read_networks(path: Path) -> dict[str, dict[str, Network]]:
    """Return the networks of each division, by name."""
    return {
        division: {name: Network(halves=np.array(of["halves"]), test=100 * of["test"]) for name, of in networks.items()}
        for division, networks in json.loads(path.read_text()).items()
    }


@dataclass(frozen=True, kw_only=True)
class Recommended:
    """A recommendation: its regret, and by how much it is worth more than the network with the higher value."""

    regret: float
    above_network: float


def recommendations(
    losses: Mapping[str, tuple[Table, int]], networks: Mapping[str, Network], half: int | None, better_by: float
) -> list[Recommended]:
    """Return the recommendation after the search of each subset of ``losses``, tables with the chosen rows.

    ``half`` is the half of the classes that validated; None for both.
    """
    found = []
    for size in range(1, len(losses) + 1):
        for names in itertools.combinations(losses, size):
            found.append(_recommended({name: losses[name] for name in names}, networks, half, better_by))
    return found


def _recommended(
    losses: Mapping[str, tuple[Table, int]], networks: Mapping[str, Network], half: int | None, better_by: float
) -> Recommended:
    (table, _), *_ = losses.values()
    place = slice(None) if half is None else on_half(table, half)
    confirmed = {name: _confirmation(table.halves[row][place], row) for name, (table, row) in losses.items()}
    classes = {name: _by_class(network.halves[place]) for name, network in networks.items()}
    basis = Basis(objective=OBJECTIVE, validation="", confirmation="", better_by=better_by)
    choice = recommend(confirmed, classes, basis)
    worth = {name: float(table.worth[row]) for name, (table, row) in losses.items()}
    tested = {name: network.test for name, network in networks.items()}
    of_choice = (worth | tested)[choice.loss]
    rival = max(networks, key=lambda name: networks[name].halves[place].mean())
    return Recommended(
        regret=max(max(worth.values()), *tested.values()) - of_choice, above_network=of_choice - tested[rival]
    )


def _confirmation(values_K: Floats, row: int) -> Confirmation:
    return Confirmation(
        number=row, params={}, searched=(), values=(float(values_K.mean()),), classes=_by_class(values_K),
        best_epochs=(), failed=0,
    )  # fmt: skip


def _by_class(values_K: Sequence[float] | Floats) -> dict[str, float]:
    return {str(place): float(value) for place, value in enumerate(values_K)}
