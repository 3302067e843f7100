"""The declared spaces, their overrides by a search file, and the resulting defaults."""

import inspect
import json
import math
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, strategies as st

from spaces.losses import SPACES
from spaces.search_space import SearchSpace, search_space
from spaces.space import Choice, Float, Int, Range, Value
from trainables.common.errors import InvalidInput
from trainables.losses import LOSSES
from trainables.models import ModelConfig
from trainables.training.training_config import TrainingConfig

TRAINING = TrainingConfig(lr=2e-3)


def space(loss: str, wishes: dict[str, Any] | None = None, training: dict[str, Any] | None = None) -> SearchSpace:
    return search_space(loss, TRAINING, wishes or {}, {"training": training or {}})


@pytest.mark.parametrize("loss", SPACES)
def test_without_a_word_the_declared_space_is_searched(loss: str) -> None:
    found = space(loss)
    assert found.parameters == SPACES[loss]
    assert found.clipped == ()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.enqueue_trial(dict(found.default))
    assert found.suggest(study.ask()) == found.default
    for _ in range(5):
        values = found.suggest(study.ask())
        assert all(found.parameters[name].contains(value) for name, value in values.items())


def test_the_contract_s_example() -> None:
    wishes = {"proxies_per_class": [1, 2, 4, 8], "margin": {"low": 0, "high": 1, "step": 0.1}, "scale": 32}
    found = space("mpa", wishes, {"lr": {"low": 1e-4, "high": 1e-2, "log": True}})
    assert found.parameters["proxies_per_class"].ends == (1, 2, 4, 8)
    assert found.parameters["margin"].distribution == Float(0, 1, step=0.1).distribution
    assert found.parameters["scale"].ends == (32,)
    assert found.parameters["training.lr"].distribution == Float(1e-4, 1e-2, log=True).distribution
    assert found.default["training.lr"] == 2e-3
    assert found.clipped == ("proxies_per_class",)  # the paper's 10 is not among the choices
    assert found.default["proxies_per_class"] == 8
    assert found.default.loss["scale"] == 32
    assert found.default.training == {"lr": 2e-3}


def test_a_default_that_trial_0_does_not_have_is_not_clipped() -> None:
    assert space("pnp", {"bound": 7}).clipped == ()  # Dq, the default, has no bound
    assert space("pnp", {"variant": "Ib", "bound": 7}).clipped == ("variant", "bound")


def test_a_range_may_be_widened_up_to_the_domain() -> None:
    assert space("pnp", {"alpha": {"high": 20}}).parameters["alpha"].ends == (1, 20)
    with pytest.raises(InvalidInput, match=r"space\.pnp\.alpha must be"):
        space("pnp", {"alpha": {"low": 0.5}})


def test_every_wrong_wish_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        space("mpa", {"margn": 1, "scale": -1, "proxies_per_class": []}, {"lr": {"low": 2, "high": 1}, "epochs": 3})
    text = "\n".join(caught.value.sentences)
    for part in ("space.mpa.margn", "space.mpa.scale", "space.mpa.proxies_per_class", "training.lr", "training.epochs"):
        assert part in text


def test_proxies_learn_at_the_loss_s_own_rate_and_losses_without_them_not_at_all() -> None:
    wish = {"proxy_lr": {"low": 1e-4, "high": 1e-1, "log": True}}
    assert space("mpa", None, wish).default["training.proxy_lr"] == 1e-2
    assert "training.proxy_lr" not in space("pnp", None, wish).parameters


@pytest.mark.parametrize(
    ("entry", "value", "expected"),
    [
        (Float(0, 1), 2.0, 1.0),
        (Float(0, 1), 0.25, 0.25),
        (Float(0, 1, step=0.1), 0.34, 0.3),
        (Int(1, 9, step=2), 4, 5),
        (Choice((1, 4, 16)), 10, 4),
        (Choice(("Ib", "Ds")), "Dq", "Ib"),
        (Choice((None, 0.1)), 0.3, 0.1),
    ],
)
def test_the_nearest_value_that_is_allowed(entry: Range, value: Any, expected: Any) -> None:
    assert entry.nearest(value) == expected


# Settings of the network


def of_model(wishes: dict[str, Any], model: ModelConfig | None = None) -> SearchSpace:
    return search_space("mpa", TRAINING, {}, {"model": wishes}, model=model or ModelConfig())


def test_settings_of_the_network_are_searched() -> None:
    wishes = {"head": ["linear", "mlp"], "embedding_dim": {"low": 16, "high": 64}, "layer_norm": [False, True]}
    found = of_model(wishes)
    assert found.default.model == {"embedding_dim": 64, "layer_norm": False, "head": "linear"}
    assert found.default.loss == search_space("mpa", TRAINING, {}).default.loss
    assert found.parameters["model.embedding_dim"].distribution == Int(16, 64).distribution
    assert not of_model({}).default.model
    shared = {"model": {"head": ["linear", "mlp"]}}
    own = search_space("mpa", TRAINING, {"model": {"head": "mlp"}}, shared, model=ModelConfig())
    assert own.default.model == {"head": "mlp"}


def test_sizes_of_an_embedding_that_keeps_the_features() -> None:
    found = of_model({"embedding_dim": [None, 128]}, ModelConfig(embedding_dim=None))
    assert found.default.model == {"embedding_dim": None}


@pytest.mark.parametrize(
    ("wishes", "sentence"),
    [
        ({"head": ["linear", "none"]}, r"space.model allows .*head: none.*: head is none, which keeps"),
        ({"embedding_dim": [0, 8]}, r"space.model allows .embedding_dim: 0.: embedding_dim must be"),
        ({"pooling": ["avg", "sum"]}, r"space.model allows .pooling: sum.: pooling must be one of"),
        ({"freeze": [None, "backbone"]}, r"the features of a random network"),
        ({"backbone": ["resnet18"]}, r"space.model.backbone: there is no such hyperparameter"),
    ],
)
def test_networks_that_cannot_be(wishes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        of_model(wishes)


@pytest.mark.parametrize("choices", [(1, 2, 1.0), (1, True), (False, 0), (0.0, -0.0), ("a", "a"), (math.nan, 1)])
def test_choices_that_optuna_cannot_tell_apart_are_refused(choices: tuple[Value, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"space\.mpa\.scale: the choice"):
        space("mpa", {"scale": list(choices)})
    with pytest.raises(InvalidInput, match="the choice"):
        Choice(choices, default=choices[-1]).check()


ODD = [0, 1, 2**53, 2**53 + 1, -1e308, 1e308, math.inf, math.nan]
ENDS = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from(ODD)
CHOICES = ENDS | st.sampled_from([None, True, "a", (1, 2), [1], {"a": 1}, np.float32(0.1), np.int64(1), object])


@given(kind=st.sampled_from([Float, Int, Choice]), low=CHOICES, high=CHOICES)
def test_a_range_that_is_accepted_proposes_what_a_record_holds(kind: type[Range], low: Any, high: Any) -> None:
    is_choice = kind is Choice or not (isinstance(low, int | float) and isinstance(high, int | float))
    try:
        entry = Choice((low, high)) if is_choice else kind(low, high)  # type: ignore[call-arg]
        _ = entry.distribution
    except InvalidInput:
        return
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for trial in (study.ask(), study.ask(), optuna.trial.FixedTrial({"x": entry.ends[-1]})):
        value = entry.suggest(trial, "x")  # type: ignore[arg-type]
        assert json.loads(json.dumps(value, allow_nan=False)) == value
        assert entry.contains(value)
        assert entry.distribution.to_external_repr(float(entry.distribution.to_internal_repr(value))) == value


# The declared spaces: one for each loss, with a row for each of its params.

OUTPUT_CONVENTIONS = {"num_classes", "embedding_dim", "reduction"}


@pytest.mark.parametrize("name", SPACES)
def test_every_param_has_a_row_with_its_default_and_source(name: str) -> None:
    arguments = inspect.signature(LOSSES[name].__init__).parameters
    assert set(SPACES[name]) == set(arguments) - {"self"} - OUTPUT_CONVENTIONS == set(LOSSES.rows[name].defaults)
    for parameter, row in SPACES[name].items():
        assert row.default == arguments[parameter].default, parameter
        assert row.source
        row.check()


FEW = st.integers(-2, 2) | st.booleans() | st.floats(-2, 2) | st.just(math.nan) | st.text(max_size=1)


@given(st.lists(FEW, min_size=1, max_size=6))
def test_choices_are_accepted_if_each_can_be_proposed(choices: list[bool | int | float | str]) -> None:
    found = [optuna.distributions.CategoricalDistribution(choices).to_internal_repr(choice) for choice in choices]
    try:
        assert Choice(choices).distribution
    except InvalidInput:
        assert found != [*range(len(choices))] or any(choice != choice for choice in choices)
    else:
        assert found == [*range(len(choices))]
