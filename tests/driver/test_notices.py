"""Notices before the search goes on."""

from collections.abc import Callable
from dataclasses import asdict

import pytest

from search.driver.notices import at_ceiling
from search.plan.search import OpenedSearch
from search.selection import Baselines
from trainables.files import write_json


@pytest.mark.parametrize(("untrained", "whitened", "best"), [(0.97, 0.93, "untrained"), (0.5, 0.9, "whitened")])
def test_a_nearly_perfect_validation_is_told(
    opened: Callable[..., OpenedSearch], untrained: float, whitened: float, best: str
) -> None:
    search = opened(losses=["pnp"])
    assert not list(at_ceiling([search])), "without pretrained weights there is nothing to score"
    values = {"untrained": {"map_at_r": untrained}, "whitened": {"map_at_r": whitened}}
    found = Baselines(network="", loaded=None, dimensions=8, validation=values, classes=values, whitening_sha256="")
    write_json(search.plan.folder.baselines, asdict(found))
    (sentence,) = at_ceiling([search])
    assert sentence.startswith(
        f"The {best} network already has map_at_r {max(untrained, whitened):.4f} on the 2 validation classes, so "
    )
    found = Baselines(**{**asdict(found), "validation": {"untrained": {"map_at_r": 0.89}, "whitened": {}}})
    write_json(search.plan.folder.baselines, asdict(found))
    assert not list(at_ceiling([search]))
