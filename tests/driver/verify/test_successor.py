"""``holdout verify`` on a successor, whose first trials are those of its predecessor."""

import json
from pathlib import Path
from typing import Any

from support.commands import holdout_here, plain, write_search

CONTENT: dict[str, Any] = {
    "name": "alike",
    "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 6, "size": 20},
    "training": {"epochs": 1, "batch_size": 10, "images_per_class": 5, "image_size": 16},
    "model": {"embedding_dim": 8},
    "losses": ["pnp"],
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 2},
    "metrics": {"test": ["map_at_r"]},
    "resources": {"engine": "in_process"},
}


def test_the_predecessor_of_a_successor_is_verified(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for trials in (2, 3):
        file = write_search(tmp_path / "alike.yaml", {**CONTENT, "search": {"trials": trials}})
        said = plain(holdout_here("run", file, "--runs", runs).stderr)
    assert "alike was tested, so alike-2 continues from its trials with 3 trials" in said
    holdout_here("verify", "alike-2", "--runs", runs)
    record = runs / "alike-2" / "predecessor.json"
    assert json.loads(record.read_text()) == {"search": "alike"}
    record.write_text('{"search": "other"}')
    done = holdout_here("verify", "alike-2", "--runs", runs, code=1)
    assert 'alike-2/pnp trial 0: copied from: "alike" is stored, "other" recomputed.' in plain(
        done.stdout + done.stderr
    )
