"""Compiled training steps compute what plain ones do, also after a resume, and are refused where they do not work."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.exact_training import assert_same, exact_spec, trained_apart

from search.config.search_config import parse_config
from search.plan.make_plan import make_plan
from trainables.data.store.spec import StoreSpec
from trainables.errors import InvalidInput
from trainables.models import ModelConfig
from trainables.spec import TrialSpec

pytestmark = pytest.mark.usefixtures("exact")


def spec_of(images: StoreSpec, path: Path, compiled: bool, **changes: Any) -> TrialSpec:
    """Return a training whose last batch of an epoch is smaller than the others."""
    training = {"compile": "default" if compiled else None, "batch_size": 24, "sampler": "random"}
    changes = {"model": ModelConfig(embedding_dim=8), **changes}
    return exact_spec(images, path / str(compiled), training=training | changes.pop("training", {}), **changes)


def test_whole_trainings_are_the_same(images: StoreSpec, tmp_path: Path) -> None:
    """With batches of two sizes, a warm-up that freezes the backbone, and averaged weights."""
    torch.compiler.reset()
    plain, compiled = (
        trained_apart(spec_of(images, tmp_path, way, training={"warmup_epochs": 1}), 3) for way in (False, True)
    )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert isinstance(compiled.learning_network, torch._dynamo.OptimizedModule)
    assert_same(compiled, plain)


def test_a_resumed_training_has_the_same_bits(images: StoreSpec, tmp_path: Path) -> None:
    """The second process meets the batches of epoch 3 first, so nothing it compiles may depend on earlier ones."""
    whole = trained_apart(spec_of(images, tmp_path / "whole", True), 3)
    spec = spec_of(images, tmp_path / "resumed", True)
    trained_apart(spec, 2).wait_for_checkpoints()
    torch.compiler.reset()
    resumed = trained_apart(spec, 1)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    assert [record["metrics"] for record in resumed.records] == [record["metrics"] for record in whole.records]


CONTENT = {"name": "birds", "dataset": {"name": "glyphs"}, "losses": ["mpa"]}


def test_an_unknown_mode() -> None:
    with pytest.raises(InvalidInput, match=r"training\.compile: must be one of default, reduce-overhead, null; it is"):
        parse_config({**CONTENT, "training": {"compile": "reduce"}})


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**CONTENT, "training": {"compile": "default"}, "model": {"freeze_bn": True}}
    assert make_plan(parse_config(content), tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InvalidInput, match=r"training\.compile is default, which needs a C\+\+ compiler"):
        make_plan(parse_config(content), tmp_path)
