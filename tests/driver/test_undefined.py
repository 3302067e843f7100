"""Undefined values, and models that cannot be scored, cost nothing else; a loss that always fails stops its search."""

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from numpy.typing import NDArray
from support.commands import holdout_here, plain, printed, refusal, stored, summary, write_search
from support.finished_search import finish
from support.own_parts import Pull
from support.own_trainings import Scales
from support.small_search import SHORTEST, small_search
from support.without_ray import only_records

import holdout
from search.records.ledger import Ledger
from trainables.common.errors import Failure
from trainables.training.epoch_training import Diverged

TESTED = 80
"""Fewer items are those of a validation."""


class Collapses(holdout.EstimatorTrainable):
    space: ClassVar = {"kind": holdout.Choice(("fine", "equal", "undefined"), default="equal")}

    def function(self, params: Any, train: Any, report: Any) -> Any:
        return _Kind(params["kind"])


class Breaks(Collapses):
    space: ClassVar = {"kind": holdout.Choice(("fine", "raises"), default="raises")}


class Zeros(Collapses):
    space: ClassVar = {"kind": holdout.Choice(("fine", "zeros"), default="zeros")}


class AllBreak(Collapses):
    space: ClassVar = {"kind": holdout.Choice(("raises",), default="raises")}


class _Kind:
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def fit(self, items: Any, labels: Any) -> None: ...

    def transform(self, items: Any) -> NDArray[np.float64]:
        found = np.array(items, dtype=np.float64)
        if self._kind == "equal":
            return 1 + 8e-6 * (np.abs(1e6 * found[:, :1]) % 2 > 1) * np.eye(len(found[0]))[0]
        if self._kind == "undefined":
            return np.concatenate((found[:, :1], np.full((len(found), 1), 1e3)), 1)  # marked for `odd`
        if self._kind != "fine" and len(found) >= TESTED:
            if self._kind == "raises":
                raise RuntimeError("no such word")
            return found * 0
        return found if self._kind == "fine" else found[:, :1]


def odd(embeddings: Any, labels: Any) -> float:
    """Return a metric that is infinite for nearly equal embeddings, and not a number for the marked ones."""
    if embeddings.shape[1] == 2:
        return float("nan")
    return float("inf") if bool(((embeddings - embeddings[0]).abs() < 1e-4).all()) else 0.5


def few(embeddings: Any, labels: Any) -> float:
    if len(embeddings) >= TESTED:
        raise ValueError(f"{len(embeddings)} are too many")
    return 0.5


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undefined")
    rng = np.random.default_rng(0)
    items = np.repeat(rng.normal(size=(16, 12)), 10, axis=0) + rng.normal(size=(160, 12)) * 0.8
    np.savez(folder / "mine.npz", embeddings=items, labels=np.repeat([f"c{number:02d}" for number in range(16)], 10))
    return folder / "runs"


def search(runs: Path, part: type, **changes: Any) -> dict[str, Any]:
    return {
        "name": part.__name__.lower(),
        "trainable": f"{__name__}:{part.__name__}",
        "dataset": {"name": "features", "file": str(runs.parent / "mine.npz")},
        "training": {"epochs": 1},
        "search": {"trials": 3, "sampler": "grid", "pruner": "none"},
        "metrics": {"validation": ["recall_at_1", "dists_ratio", f"{__name__}:odd"]},
        "selection": {"finalists": 1, "seeds": 1, "on": "split"},
        "final": {"seeds": 2},
        **changes,
    }


def test_a_metric_that_is_undefined_or_raises_costs_no_other(runs: Path) -> None:
    odd, few = f"{__name__}:odd", f"{__name__}:few"
    validation, test = ["recall_at_1", "dists_ratio", odd, few], ["recall_at_1", "map_at_r", "dists_ratio", odd, few]
    finish(runs, search(runs, Collapses, metrics={"validation": validation, "test": test}))
    row = summary(runs, "collapses")["losses"]["collapses"]
    assert [row["default"]["test"][name] for name in ("dists_ratio", "odd", "few")] == [None] * 3
    assert row["default"]["test"]["recall_at_1"]["mean"] >= 0
    assert row["tuned"]["test"]["few"] is None
    assert row["tuned"]["test"]["odd"]["mean"] == 0.5
    assert row["tuned"]["test"]["dists_ratio"]["mean"] > 0
    table = holdout.open("collapses", runs=runs)
    values = [table.history("collapses", number)["odd"].iloc[0] for number in range(3)]
    assert sorted(values, key=str) == pytest.approx([0.5, np.nan, np.nan], nan_ok=True)
    assert row["trials"]["complete"] == 3
    assert "80 are too many" in printed("compare", "collapses", "--runs", runs)
    for arguments in (("verify", "collapses", "--trust-code"), ("report", "collapses"), ("sync", "collapses")):
        holdout_here(*arguments, "--runs", runs)
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    (experiment,) = [entry for entry in client.search_experiments() if entry.name == "collapses"]
    logged = [run.data.metrics for run in client.search_runs([experiment.experiment_id])]
    assert sum("validation/odd" in metrics for metrics in logged) == sum(
        metrics.get("validation/odd") == 0.5 for metrics in logged
    )


def test_a_training_without_its_objective_fails_with_the_reason(runs: Path) -> None:
    changes = {"search": {"trials": 3, "sampler": "grid", "pruner": "none", "objective": f"{__name__}:odd"}}
    with pytest.raises(Diverged, match=r"odd is undefined \(inf\) in epoch 1"):
        finish(runs, search(runs, Collapses, name="objective", stages=["search"], **changes))


@pytest.mark.parametrize(("part", "reason"), [(Breaks, "no such word"), (Zeros, "80 of 80 embeddings")])
def test_a_model_that_cannot_be_scored_costs_no_other(part: type, reason: str, runs: Path) -> None:
    finish(runs, search(runs, part, search={"trials": 2, "pruner": "none", "sampler": "grid"}))
    name = part.__name__.lower()
    row = summary(runs, name)["losses"][name]
    assert row["default"]["test"] is None
    assert row["tuned"]["test"]["recall_at_1"]["mean"] > 0
    said = holdout_here("compare", name, "--runs", runs).stdout
    assert "could not be scored on the test" in said
    assert reason in plain(said)
    holdout_here("verify", name, "--runs", runs, "--trust-code")


def test_without_any_scores_the_opening_is_resumed(runs: Path) -> None:
    with pytest.raises(Failure, match=r"no such word.* run the same command again"):
        finish(runs, search(runs, AllBreak, search={"trials": 1, "pruner": "none"}))
    assert not (runs / "allbreak/test.json").exists()


# A loss that fails in every trial stops its search before the choice, unless ``--allow-failed`` is given.

CHANGES: dict[str, Any] = {
    **SHORTEST,
    "losses": ["pnp", f"{__name__}:Raises", f"{__name__}:BecomesNan"],
    "search": {"trials": 2},
    "metrics": {"test": ["recall_at_1"]},
    "resources": {"engine": "in_process"},
}


class Raises(Pull):
    name = "raises"

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        raise IndexError("no such anchor")


class BecomesNan(Pull):
    name = "becomes_nan"

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        return super().compute(embeddings_BD, labels_B) * float("nan")


def test_losses_that_always_fail_stop_the_search_before_its_choice(
    image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_records(monkeypatch)
    runs, file = tmp_path / "runs", write_search(tmp_path / "small.yaml", small_search(image_folder, **CHANGES))
    said = refusal("run", file, "--runs", runs, code=1)
    error = "failed (CODE_ERROR in 2 of 2). The first error: IndexError: no such anchor."
    assert f"Every trial of small/raises {error}" in said
    assert "Every trial of small/becomes_nan failed (DIVERGED in 2 of 2)." in said
    assert "allow_failed=True) to continue with pnp." in said
    assert not (runs / "small" / "selection.json").exists()
    assert not Ledger(runs / "test_openings.jsonl").openings()
    assert "Correct the cause and search under a new name, or repeat" in said
    assert "Every trial of small/raises failed" in refusal("select", "small", "--runs", runs, code=1)
    holdout.run(file, runs=runs, quiet=True, allow_failed=True)
    assert list(json.loads((runs / "small" / "selection.json").read_text())["chosen"]) == ["pnp"]
    tests = {loss: entry["tuned"]["test"] for loss, entry in summary(runs, "small")["losses"].items()}
    assert tests["pnp"]["recall_at_1"]["values"]
    assert tests["raises"] is None
    holdout_here("run", file, "--runs", runs)  # the choice is made


# Code that fails at once stops its loss, and is tried again once it is corrected.


class Fragile(Scales):
    space: ClassVar = {"lr": holdout.Float(0.01, 1.0, log=True, default=0.1)}
    fails_from: ClassVar = 0.0

    def setup(self, params: Any, train: Any, *, seed: int, device: torch.device) -> None:
        super().setup(params, train, seed=seed, device=device)
        if params["lr"] >= self.fails_from:
            raise KeyError(f"no value for {params['lr']}")


def test_code_that_is_corrected_is_searched_under_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_records(monkeypatch)
    content = {
        "name": "fragile", "trainable": f"{__name__}:Fragile", "dataset": {"name": "support.own_trainings:ManyRecords"},
        "training": {"epochs": 1}, "search": {"trials": 5, "pruner": "none"}, "final": {"seeds": 1},
        "resources": {"engine": "in_process"},
    }  # fmt: skip
    runs, file = tmp_path / "runs", write_search(tmp_path / "fragile.yaml", content)
    for attempt in range(2):
        said = refusal("run", file, "--yes", "--runs", runs, code=1)
        assert "Every trial of fragile/fragile failed (CODE_ERROR in 2 of 2)" in said
        assert "no value for 0.1'" in said
        assert "test_undefined.py, line " in said
        assert said.endswith("Correct the cause and run the same search again.")
        assert ("Retrying 2 trials of fragile/fragile" in said) == (attempt == 1)
        assert summary(runs, "fragile")["losses"]["fragile"]["trials"] == {"complete": 0, "pruned": 0, "failed": 2}
        table = printed("trials", "fragile", "--runs", runs)
        assert table.count("CODE_ERROR: KeyError") == (2 if attempt == 0 else 3)
        holdout_here("verify", "fragile", "--runs", runs, "--trust-code")
    enqueue = ("enqueue", "fragile", "--loss", "fragile", "--params", "{lr: 0.2}", "--runs", runs, "--trust-code")
    assert "run its file again first" in refusal(*enqueue)
    journal = (runs / "fragile/study.journal").read_text()

    monkeypatch.setattr(Fragile, "fails_from", 2.0)
    monkeypatch.setattr(Fragile, "space", {"lr": holdout.Float(0.01, 1.0, log=True, default=0.3)})
    holdout_here("run", file, "--yes", "--runs", runs)
    assert stored(runs, "fragile", "fragile")[0].params == {"lr": 0.3}, "the default of the corrected code"
    assert (runs / "fragile/study.journal").read_text().startswith(journal), "nothing is removed"
    assert [trial.state.name for trial in stored(runs, "fragile", "fragile")] == ["COMPLETE"] * 5
    assert "began anew after 4 trials failed" in printed("trials", "fragile", "--runs", runs)
    holdout_here("verify", "fragile", "--runs", runs, "--trust-code")
    holdout_here("run", file, "--yes", "--runs", runs)
