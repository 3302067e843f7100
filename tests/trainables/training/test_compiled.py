"""Compiled training steps compute what plain ones do, also after a resume, and are refused where they do not work."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.stacks import alone, assert_same, member

from search.config.search_config import parse_config
from search.plan.make_plan import make_plan
from trainables.data.store.spec import StoreSpec
from trainables.mistakes import Mistakes
from trainables.models import ModelConfig
from trainables.spec import TrialSpec
from trainables.training.config import TrainingConfig
from trainables.training.stack import stack_key, why_not_stacked

pytestmark = pytest.mark.usefixtures("exact")


def spec_of(images: StoreSpec, path: Path, compiled: bool, **changes: Any) -> TrialSpec:
    """Return a training whose last batch of an epoch is smaller than the others."""
    training = {"compile": "default" if compiled else None, "batch_size": 24, "sampler": "random", "ema": 0.5}
    changes = {"model": ModelConfig(embedding_dim=8), **changes}
    return member(images, path / str(compiled), 0, training=training | changes.pop("training", {}), **changes)


def test_whole_trainings_are_the_same(images: StoreSpec, tmp_path: Path) -> None:
    """With batches of two sizes, a warm-up that freezes the backbone, and averaged weights."""
    torch.compiler.reset()
    plain, compiled = (alone(spec_of(images, tmp_path, way, training={"warmup_epochs": 1}), 3) for way in (False, True))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert isinstance(compiled.learning_network, torch._dynamo.OptimizedModule)
    assert_same(compiled, plain)


def test_a_resumed_training_has_the_same_bits(images: StoreSpec, tmp_path: Path) -> None:
    """The second process meets the batches of epoch 3 first, so nothing it compiles may depend on earlier ones."""
    whole = alone(spec_of(images, tmp_path / "whole", True), 3)
    spec = spec_of(images, tmp_path / "resumed", True)
    alone(spec, 2).wait_for_checkpoints()
    torch.compiler.reset()
    resumed = alone(spec, 1)
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
    assert [record["metrics"] for record in resumed.records] == [record["metrics"] for record in whole.records]


def test_a_stack_is_not_compiled(images: StoreSpec, tmp_path: Path) -> None:
    assert stack_key(spec_of(images, tmp_path, True)) is None
    said = why_not_stacked(loss="mpa", model=ModelConfig(), training=TrainingConfig(compile="default"))
    assert said == "training.compile is default, which is for the steps of a single training"


CONTENT = {"name": "birds", "dataset": {"name": "glyphs"}, "losses": ["mpa"]}


def test_an_unknown_mode() -> None:
    with pytest.raises(Mistakes, match="compile must be null or one of default, reduce-overhead; it is 'reduce'"):
        parse_config({**CONTENT, "training": {"compile": "reduce"}})


def test_several_gpus_and_a_missing_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = {**CONTENT, "training": {"compile": "default"}, "model": {"freeze_bn": True}}
    assert make_plan(parse_config(content), tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Mistakes) as caught:
        make_plan(parse_config({**content, "resources": {"gpus_per_trial": 2}}), tmp_path)
    several, missing = (sentence for sentence in caught.value.sentences if "training.compile" in sentence)
    assert "only trainings on one device are compiled" in several
    assert "needs a C++ compiler" in missing
