"""The number of distinct proxies, from the final trainings to tables, report, MLflow and verify."""

import json
import math
from pathlib import Path

import pytest
from safetensors.torch import load_file
from support.commands import holdout_here, plain, stored
from support.finished_search import finish
from support.journals import epochs_in
from support.small_search import GLYPHS
from support.tampered import Copied

from trainables.losses.loss import SAME_PROXY

PROXIES = 16


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search of a loss with sixteen proxies a class in the plane, where some meet, and of one with one."""
    losses = {"losses": ["mpa", "proxy_anchor"], "space": {"mpa": {"proxies_per_class": PROXIES}}}
    changes = {"name": "small", "model": {"embedding_dim": 2}, "search": {"trials": 1}, "final": {"seeds": 2}}
    return finish(tmp_path_factory.mktemp("distinct") / "runs", {**GLYPHS, **losses, **changes})


def counted(path: Path) -> float:
    """Count the proxies of a class that are far from all before them, by plain loops."""
    classes = load_file(path)["loss.proxies"].tolist()
    counts = []
    for proxies in classes:
        units = [[value / math.hypot(*proxy) for value in proxy] for proxy in proxies]
        group = list(range(len(units)))
        for first in range(len(units)):
            for second in range(first):
                if math.dist(units[first], units[second]) <= SAME_PROXY:
                    group = [group[second] if entry == group[first] else entry for entry in group]
        counts.append(len(set(group)))
    return sum(counts) / len(counts)


def test_a_row_holds_the_count_of_the_models_for_the_test(runs: Path) -> None:
    of_loss = json.loads((runs / "small/summary.json").read_text())["losses"]
    values = [counted(path) for path in sorted((runs / "small/trials/mpa@final").glob("*/attempt-*/best.safetensors"))]
    assert len(values) == 2
    assert of_loss["mpa"]["tuned"]["distinct_proxies"] == {
        "mean": sum(values) / 2, "std": pytest.approx(abs(values[0] - values[1]) / math.sqrt(2)), "seeds": 2,
        "values": values, "ci95": None,
    }  # fmt: skip
    assert 1 < min(values) <= max(values) < PROXIES
    assert of_loss["proxy_anchor"]["tuned"]["distinct_proxies"] is None
    assert not any("distinct_proxies" in record for record in epochs_in(stored(runs, "small", "proxy_anchor")[0]))


def test_verify_counts_the_proxies_of_each_model(runs: Path, tmp_path: Path) -> None:
    """Before the choice is frozen, no digest covers the records of the epochs."""
    holdout_here("verify", "small", "--runs", runs)
    finish(tmp_path / "origin", {**GLYPHS, "name": "small", "losses": ["mpa"], "stages": ["search"]})
    copied = Copied(tmp_path / "origin", tmp_path / "runs")
    (best, *_) = [record["epoch"] for record in reversed(epochs_in(copied.trials("mpa")[0])) if record["checkpoint"]]
    copied.epoch("mpa", 0, best, distinct_proxies=3.5)
    said = plain(holdout_here("verify", "small", "--runs", copied.runs, code=1).stderr)
    assert "best.safetensors: the number of distinct proxies: 3.5 is stored" in " ".join(said.split())
