"""The bench of searches: tables, the nearest row, and searches in simulated time, calculated by hand."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from benchmarks.search.__main__ import TABLES
from benchmarks.search.replay import Outcome, Replay
from benchmarks.search.table import Table, read_table
from benchmarks.search.ways import PRODUCT, RULES, WAYS, Rule, Way
from search.config.search_config import SearchConfig
from search.study.sampler import Fixed, Sampler
from search.tables import SAMPLERS
from spaces.losses import declared_space
from spaces.search_space import SearchSpace
from spaces.space import Float, Params
from trainables.losses import loss_part

NAMES = [path.stem for path in sorted(TABLES.glob("*.parquet"))]
BEST = Rule(on="search", finalists=1)


def hill(values: Sequence[float], epochs: int = 8) -> Table:
    """Return a table over x in 0 … 1 whose trainings have constant curves of these values and no noise.

    The test and four classes of the halves have the same values.
    """
    places = np.linspace(0, 1, len(values))
    x = Float(0, 1, default=0.0, source="made up")
    heights = np.repeat(np.array(values)[:, None], 2, axis=1)
    return Table(
        name="hill",
        space=SearchSpace(parameters={"x": x}, declared={"x": x}),
        configurations=tuple(Params({"x": float(place)}) for place in places),
        validation=np.repeat(heights[..., None], epochs, axis=-1),
        test=heights,
        split=heights,
        halves=np.repeat(heights, 2, axis=1),
        first=2,
        halved=np.repeat(heights[..., None], epochs, axis=-1),
        about={},
    )


def replayed(table: Table, sampler: type[Sampler], *rules: Rule, slots: int = 1, pruner: str = "none") -> Outcome:
    return Replay(table, Way(sampler=sampler, pruner=pruner), trials=4, slots=slots, run=0).outcome(rules)


class InOrder(Sampler):
    """Proposes 0.25, 0.5, 0.75 and so on."""

    parts = 4

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return Fixed({"x": number / self.parts})


class InThirds(InOrder):
    """Proposes 1/3, 2/3 and 1."""

    parts = 3


@pytest.mark.parametrize(("slots", "time"), [(1, 16 + 4), (2, 10), (4, 8)])
def test_searches_by_hand(slots: int, time: float) -> None:
    # With two slots trials 0 and 1 train until 8; trials 2 and 3 follow until 10, where both are in the lower half of
    # rung 2. With four slots trial 2, of 0.1, is the third to reach rung 2, and trial 3 the fourth: the same.
    outcome = replayed(hill([0.5, 0.9, 0.1, 0.2, 0.0]), InOrder, BEST, slots=slots, pruner="asha")
    assert (outcome.time, outcome.epochs) == (time, 20)
    assert outcome.choices[0].chosen == 1
    assert outcome.tried == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        (BEST, 1),
        (Rule(), 3),
        (Rule(finalists=1), 0),
        (Rule(finalists=None), 3),
        (Rule(finalists=None, agreed=False), 2),
        (Rule(finalists=None, agreed=False, better_by=3), 3),
        (Rule(on="split"), 1),
    ],
)
def test_rules_by_hand(rule: Rule, chosen: int) -> None:
    # On halves, row 1 is worse than the default, row 2 better by .2 ± .1 and row 3 by .1 ± 0; on the fixed split row 2
    # is the only one below the default.
    table = hill([0.5, 0.9, 0.4, 0.6])
    spread = 0.2 * np.sqrt(0.75) * np.array([1, -1, 1, -1])
    halves = np.stack([np.full(4, 0.5), np.full(4, 0.4), 0.7 + spread, np.full(4, 0.6)])
    assert replayed(replace(table, halves=halves), InThirds, rule).choices[0].chosen == chosen


def test_the_default_rule_is_the_search_files() -> None:
    section, way = SearchConfig.model_fields["selection"].default, next(iter(WAYS.values()))
    rule = RULES[PRODUCT]
    assert (rule.finalists, rule.better_by) == (section.finalists, section.better_by)
    search = SearchConfig.model_fields["search"].default
    assert (way.sampler, way.pruner) == (SAMPLERS[search.sampler], search.pruner)


@pytest.mark.parametrize("name", NAMES)
def test_committed_tables(name: str) -> None:
    table = read_table(TABLES / f"{name}.parquet")
    space = declared_space(loss_part(table.about["loss"]))
    assert {key for key in table.space.parameters if "." not in key} == set(space)
    assert table.configurations[0] == table.space.default
    assert len(table.configurations) == len(table.validation) == len(set(table.configurations))
    classes = table.about["classes"]
    assert table.split.shape[1] == classes["validation"]
    assert table.halves.shape[1] == classes["train"] + classes["validation"]
    assert table.split.mean(1) == pytest.approx(table.validated.mean(1), abs=0.01)
    assert name in table.about["command"]
    assert {type(value) for value in table.configurations[0].values()} <= {float, int, str}
