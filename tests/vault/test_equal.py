"""A vault gives the values of a search's own test: the same final models are scored in both ways."""

import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.finished_search import finish, in_turn
from support.kinds import FEW, Kinds
from support.small_search import GLYPHS, SHORTEST
from support.vault_requests import ask, message, opening_of

from examples.tiny_network import TinyNetwork
from search.config.yaml_file import read_yaml
from search.driver.make_plan import reopened
from search.driver.sealed import files_of, models_to_send, parts_of, test_items as items_of
from search.driver.verify.scores import kept_scorings
from search.records import BaselineScoring, ScoredOpening, Scoring, Selection, images_in, scored_openings
from search.records.records import Records
from search.records.runs import RunFolder
from search.results.comparison import compare
from search.trust import own_code, remember
from search.vault.held import Policy, Vault, make_vault
from search.vault.protocol import content_of
from trainables.metrics import is_retrieval

SMALL: dict[str, Any] = {**GLYPHS, **SHORTEST, "name": "small", "metrics": FEW}
TINY = "examples.tiny_network:TinyNetwork"
OTHERS: dict[str, dict[str, Any]] = {
    "MPA and an own loss": {"losses": ["mpa", "support.own_parts:Pull"], "final": {"seeds": 2}},
    "torchvision": {"model": {"backbone": "resnet18", "embedding_dim": 8}},
    "timm": {"model": {"backbone": "timm:test_resnet.r160_in1k", "embedding_dim": 8}},
    "LoRA of a built-in network": {"model": {"backbone": "convnet", "embedding_dim": 8, "lora": {"rank": 2}}},
}
"""Searches beside those of :mod:`support.kinds`, as their difference from :data:`SMALL`."""
FAST = ("frozen backbone", "groups, queries and a gallery", "superclasses", "test lists", "folds")
SLOW = ("images", "features", "torchvision", "timm", "LoRA of a built-in network")
EXACT = [*FAST, "MPA and an own loss", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
OF_EMBEDDINGS = [
    "own function",
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("images", "own class without epochs")),
]


@dataclass(frozen=True)
class BothWays:
    """A finished search, its only opening, and the record and files of the same models from a vault."""

    folder: RunFolder
    scorings: list[Scoring | BaselineScoring]
    own: ScoredOpening
    parts: dict[str, Any]
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def searches(kinds: Kinds, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """Return a function that gives the folder of a finished search."""

    def found(kind: str) -> RunFolder:
        if kind not in OTHERS:
            return RunFolder(kinds(kind).runs, kinds(kind).name)
        return RunFolder(finish(tmp_path_factory.mktemp("runs"), {**SMALL, **OTHERS[kind]}), "small")

    return found


def both_ways(
    folder: RunFolder, to: Path, change: Callable[[Any], Any] = lambda scorings: scorings, **policy: Any
) -> BothWays:
    """Score the final models of a finished search, or their ``change``, by a vault of its data set, too."""
    remember(folder.path, own_code(read_yaml(folder.config)))  # each test has a state folder of its own
    plan = reopened(folder.runs, folder.name)
    given = Policy(seconds=120.0, memory_gb=8.0, **policy)
    make_vault(plan.config.dataset.source, to / "vault", given, seed=plan.config.split.seed)
    items = str(to / "vault-items") if given.labels_only else None
    (own,) = scored_openings(folder.test)
    vault, selection = Vault(to / "vault").description([]), Selection.load(folder.selection)
    final = plan.config.final.model_copy(update={"vault_items": items})
    shown = items_of(replace(plan, config=plan.config.model_copy(update={"final": final})))
    scorings = change(kept_scorings(Records(folder, plan), selection, own, shown))
    models = models_to_send(scorings, in_turn, labels_only=given.labels_only)
    head, blobs = opening_of(to / "vault", *models, training=images_in(plan.images.make()))
    head["selection"] = replace(selection, test_digest=vault["test"]).to_json()
    signed, sent = ask(to / "vault", message(head, blobs))
    assert "error" not in signed, signed
    found = content_of(signed, vault["key"])
    files = {name: sent[digest] for name, digest in files_of(found).items()}
    return BothWays(folder, scorings, own, parts_of(found), files)


def of_classes(content: Path | bytes) -> dict[str, list[tuple[int, float]]]:
    """Return the number and the mean of each class's scores by metric, for a file of results, without their names."""
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    with np.load(file) as arrays:
        scores = {name: arrays[name] for name in arrays.files if is_retrieval(name)}
        labels_N = arrays["labels"]
    return {
        name: sorted(
            (len(of := scores_N[(labels_N == label) & ~np.isnan(scores_N)]), float(of.mean()) if len(of) else 0.0)
            for label in np.unique(labels_N)
        )
        for name, scores_N in scores.items()
    }


def entries_of(scored: BothWays) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the scores by the own test and by the vault, baselines last."""
    own = [entry.content() for entry in (*scored.own.scores, *scored.own.baselines)]
    return own, [*scored.parts["scores"], *scored.parts["baselines"]]


@pytest.mark.parametrize("kind", EXACT)
def test_every_value_is_that_of_the_own_test(searches: Callable[[str], RunFolder], kind: str, tmp_path: Path) -> None:
    scored = both_ways(searches(kind), tmp_path)
    own, by_vault = entries_of(scored)
    assert by_vault == own
    assert scored.parts["failed"] == []
    assert (scored.parts["overlap"], scored.parts["copies"]) == (scored.own.overlap, scored.own.copies)
    assert_same_classes(scored)
    assert_same_pairs(scored, tmp_path)


def test_a_network_of_your_own_has_the_same_values(searches: Callable[[str], RunFolder], tmp_path: Path) -> None:
    """As an ONNX program, which rounds otherwise."""
    assert_near(both_ways(searches("LoRA"), tmp_path))


@pytest.mark.slow
def test_a_frozen_network_of_your_own_has_the_same_values(tmp_path: Path) -> None:
    torch.save(TinyNetwork().state_dict(), weights := tmp_path / "tiny.pth")
    model = {"backbone": TINY, "weights": str(weights), "freeze": "backbone", "embedding_dim": 8}
    assert_near(both_ways(RunFolder(finish(tmp_path / "runs", {**SMALL, "model": model}), "small"), tmp_path))


@pytest.mark.parametrize("kind", OF_EMBEDDINGS)
def test_embeddings_alone_have_the_same_values(searches: Callable[[str], RunFolder], kind: str, tmp_path: Path) -> None:
    scored = both_ways(searches(kind), tmp_path, labels_only=True)
    assert_near(scored)
    assert_same_pairs(scored, tmp_path)


def assert_near(scored: BothWays) -> None:
    """Check that values and their names are the same up to 1e-5."""
    own, by_vault = entries_of(scored)
    metrics = [(ours.pop("metrics"), theirs.pop("metrics")) for ours, theirs in zip(own, by_vault, strict=True)]
    assert by_vault == own
    for ours, theirs in metrics:
        assert theirs == pytest.approx(ours, abs=1e-5)
    assert metrics


def assert_same_classes(scored: BothWays) -> None:
    """Check that each class has as many scores as in the own test, with the same mean."""
    for name, content in scored.files.items():
        expected = of_classes(scored.folder.path / "test" / scored.own.id / name)
        found = of_classes(content)
        assert found.keys() == expected.keys()
        for metric in expected:
            assert np.allclose(found[metric], expected[metric], atol=1e-9)
    assert scored.files


def assert_same_pairs(scored: BothWays, tmp_path: Path) -> None:
    """Check that all differences, intervals and verdicts follow from the vault's files as from the own ones."""
    before = compare([Records(scored.folder)]).pairs
    shutil.copytree(scored.folder.runs, tmp_path / "runs")
    copied = RunFolder(tmp_path / "runs", scored.folder.name)
    for name, content in scored.files.items():
        (copied.path / "test" / scored.own.id / name).write_bytes(content)
    after = compare([Records(copied)]).pairs
    assert len(after) == len(before)
    for pair in zip(before, after, strict=True):
        ours, theirs = ((each.difference, *(each.ci95 or ()), each.p, each.p_corrected) for each in pair)
        assert theirs == pytest.approx(ours, abs=1e-9)
        ours, theirs = ((each.first, each.second, each.metric, each.differ) for each in pair)
        assert theirs == ours
