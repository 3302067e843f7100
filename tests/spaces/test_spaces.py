"""Contract of the declared spaces: one for each loss, with a row for each of its params."""

import inspect

import pytest
from hypothesis import given, settings, strategies as st
from optuna.distributions import CategoricalDistribution

from spaces.losses import SPACES
from spaces.space import Choice
from trainables.errors import InvalidInput
from trainables.losses import LOSSES

OUTPUT_CONVENTIONS = {"num_classes", "embedding_dim", "reduction"}


def test_one_space_a_loss() -> None:
    assert list(SPACES) == list(LOSSES)


@pytest.mark.parametrize("name", SPACES)
def test_every_param_has_a_row_with_its_default_conditions_and_source(name: str) -> None:
    arguments = inspect.signature(LOSSES[name].__init__).parameters
    assert set(SPACES[name]) == set(arguments) - {"self"} - OUTPUT_CONVENTIONS == set(LOSSES.rows[name].defaults)
    seen: list[str] = []
    for parameter, row in SPACES[name].items():
        assert row.default == arguments[parameter].default, parameter
        assert set(row.when) <= set(seen)
        assert row.source
        row.check()
        seen.append(parameter)


def test_pnp_searches_what_its_variant_has() -> None:
    space = SPACES["pnp"]
    assert [name for name in space if space[name].exists({"variant": "Dq"})] == ["variant", "temperature", "alpha"]
    assert [name for name in space if space[name].exists({"variant": "Ib"})] == ["variant", "temperature", "bound"]
    assert [name for name in space if space[name].exists({"variant": "Ds"})] == ["variant", "temperature"]


def test_what_the_papers_found_best_can_be_found() -> None:
    for loss, best in {
        "multi_similarity": {"margin": 0.8, "pos_scale": 18, "neg_scale": 76, "epsilon": 0.4},
        "soft_triple": {"margin": 0.4, "scale": 78, "gamma": 1 / 58, "tau": 0.4},
        "proxy_anchor": {"scale": 32}, "pnp": {"bound": 1}, "mpa": {"proxies_per_class": 2},
    }.items():  # fmt: skip
        assert all(SPACES[loss][name].contains(value) for name, value in best.items()), loss


@settings(deadline=None)
@given(
    st.lists(
        st.integers(-2, 2) | st.booleans() | st.floats(-2, 2) | st.just(float("nan")) | st.text(max_size=1),
        min_size=1,
        max_size=6,
    )
)
def test_each_of_the_choices_that_are_accepted_can_be_proposed(choices: list[bool | int | float | str]) -> None:
    found = [CategoricalDistribution(choices).to_internal_repr(choice) for choice in choices]
    try:
        assert Choice(choices).distribution
    except InvalidInput:
        assert found != [*range(len(choices))] or any(choice != choice for choice in choices)
    else:
        assert found == [*range(len(choices))]
