"""A search of LoRA's rank beside fine-tuning, from the file to a verified, merged model."""

import json
from pathlib import Path

from support.commands import holdout_here
from support.finished_search import finish
from support.small_search import draw_folder, small_search

import holdout


def test_rank_is_searched_tested_verified_and_exported_merged(tmp_path: Path) -> None:
    content = small_search(
        draw_folder(tmp_path / "images"),
        model={"backbone": "examples.tiny_network:TinyNetwork", "embedding_dim": 8, "lora": {"rank": 2}},
        training={"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        losses=["proxy_anchor"],
        space={"model": {"lora.rank": [2, 4], "lora.alpha": {"low": 4, "high": 32, "log": True}}},
        search={"trials": 2},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
    )
    finish(tmp_path / "runs", content)
    search = holdout.open("small", runs=tmp_path / "runs")
    assert search.trials("proxy_anchor")["params_model.lora.rank"].isin([2, 4]).all()
    holdout_here("verify", "small", "--runs", tmp_path / "runs", "--trust-code")
    folder = tmp_path / "runs/small/models/proxy_anchor"
    assert "lora" not in json.loads((folder / "model.json").read_text())["model"]
    model = holdout.load(folder, trust_code=True)
    assert not any("lora" in name for name in model.network.state_dict())
    assert model.embed(sorted((tmp_path / "images/class-00").iterdir())).shape == (10, 8)
