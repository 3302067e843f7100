"""``holdout verify`` on a search that confirms on two splits of the training classes."""

from pathlib import Path

from support.commands import holdout_here, plain, stored
from support.finished_search import run_here
from support.small_search import small_search
from support.tampered import Copied


def test_it_is_recomputed_and_another_split_is_found(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    content = small_search(
        tmp_path,
        dataset={"name": "glyphs", "num_classes": 16, "images_per_class": 10, "centres": 2, "size": 20},
        losses=["pnp"],
        training={"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        search={"trials": 3},
        selection={"finalists": 2, "seeds": 2, "splits": 2},
        final={"seeds": 1},
    )
    for search in run_here(runs, [content]):
        search.close()
    attributes = [trial.user_attrs for trial in stored(runs, "small", "pnp@confirm")]
    assert {entry["split"] for entry in attributes} == {0, 1}
    (number, *_) = [number for number, entry in enumerate(attributes) if entry["split"] == 1]
    lines = holdout_here("verify", "small", "--runs", runs, "--retrain", f"pnp@confirm:{number}").stdout.splitlines()
    assert all(line.startswith("ok  ") for line in lines), lines
    said = " ".join(plain(holdout_here("compare", "small", "--runs", runs).stdout).split())
    assert "of 2 splits of the training classes the chosen configuration is also the best" in said
    copied = Copied(runs, tmp_path / "copied")
    trial = copied.trial("pnp@confirm", number)
    copied.sql("UPDATE trial_user_attributes SET value_json = '0' WHERE trial_id = ? AND key = 'split'", trial)
    found = holdout_here("verify", "small", "--runs", copied.runs, code=1)
    assert "small/pnp@confirm" in found.stdout + plain(found.stderr)
