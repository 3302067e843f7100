"""The size before the crop that a network of timm brings with it."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import plain

from search.config.search_config import SearchConfig, parse_config, parse_stored
from search.plan.make_plan import make_plan

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("timm"), reason="timm is absent")


def search(backbone: str, **training: Any) -> SearchConfig:
    model = {"backbone": backbone, "embedding_dim": 8}
    return parse_config(
        {"name": "s", "dataset": {"name": "glyphs"}, "losses": ["pnp"], "model": model, "training": training}
    )


@pytest.mark.parametrize("side", [64, 112])
def test_a_size_left_null_is_timms(side: int) -> None:
    from timm.data import create_transform, resolve_data_config

    settings = resolve_data_config(pretrained_cfg={"input_size": (3, side, side), "crop_pct": 0.95})
    resize = create_transform(**settings).transforms[0]
    config = search("timm:test_resnet", image_size=side)
    assert config.training.resize_size == resize.size
    assert (config.training.frame.side, config.training.frame.short_side) == (side, resize.size)


def test_a_size_in_the_file_is_kept() -> None:
    assert search("timm:test_resnet", image_size=64, resize_size=70).training.resize_size == 70
    assert search("resnet18", image_size=64).training.resize_size is None
    assert search("timm:nothing", image_size=64).training.resize_size is None
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    config = search("timm:test_resnet", image_size=64)
    assert torch.equal(torch.rand(3), expected), "random numbers are left alone"
    assert config.training.resize_size == 67
    assert parse_stored(config.model_dump(mode="json"), Path("search.yaml")) == config


def test_the_plan_says_what_was_taken_over(tmp_path: Path) -> None:
    (notice,) = make_plan(search("timm:test_convnext", image_size=64, resize_size=70), tmp_path / "runs").notices
    assert plain(notice) == (
        "model.backbone: timm's mean 0.5 0.5 0.5 and std 0.5 0.5 0.5; training.resize_size is 70, and timm's crop_pct "
        "0.95 gives 67; timm evaluates crops of 160 pixels, resized with bicubic interpolation, and this search those "
        "of 64, bilinear."
    )
