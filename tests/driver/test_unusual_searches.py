"""Unusual searches: their scores against plain loops and scikit-learn, and choices under constraints.

Queries and a gallery with cameras and groups, three test lists, superclasses, and constraints. Shapes: N test images.
"""

import csv
import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score
from support.commands import holdout_here, refusal, write_search
from support.finished_search import run_here
from support.kinds import OF_LISTS, OF_QUERIES, QUALITY, SHORT, WEIGHT, Kinds, by_group, on_features, trade
from support.small_search import SearchFile
from support.without_ray import only_records

from search.config.search_config import validate_config
from search.driver.choice import FailedLosses
from search.records.ledger import Ledger
from search.records.records import Records
from search.records.retrieval_file import FOLDER, RetrievalFile
from search.records.runs import RunFolder
from search.records.scoring import kept_metrics
from search.results.pairs import class_scores
from search.results.summarise import summarise
from search.stages import Stage
from search.trials import epochs_of
from trainables.inference.model_files import read_network

KIND = "groups, queries and a gallery"
LISTS = {"small": "test_list_800", "medium": "test_list_1600", "large": "test_list_2400"}


# Queries and a gallery.


def test_queries_are_scored_against_the_gallery(kinds: Kinds) -> None:
    """Compare with plain loops over the stored neighbours."""
    search = kinds(KIND)
    manifest = Path(search.content["dataset"]["file"]).read_text()
    row_of = {row["path"]: row for row in csv.DictReader(manifest.splitlines())}
    folder = search.folder / "test" / search.opening["id"]
    for model in search.opening["scores"]:
        assert list(model["metrics"]) == OF_QUERIES
        retrieval = RetrievalFile.read(folder / FOLDER / model["per_image"])
        with np.load(folder / model["per_image"]) as stored:
            kept = {name: stored[name] for name in stored.files}
        rows = [row_of[key] for key in kept["keys"].tolist()]
        queries = [at for at, row in enumerate(rows) if row["part"] == "query"]
        assert retrieval.queries_Q.tolist() == queries
        for query, near in zip(queries, retrieval.neighbours_QK.tolist(), strict=True):
            own = rows[query]
            gallery = [
                at for at, row in enumerate(rows)
                if row["part"] == "gallery" and (row["class"], row["camera"]) != (own["class"], own["camera"])
            ]  # fmt: skip
            assert set(near) <= set(gallery)
            relevant = sum(rows[at]["class"] == own["class"] for at in gallery)
            hits = [rows[at]["class"] == own["class"] for at in near]
            assert kept["recall_at_1"][query] == hits[0]
            assert kept["r_precision"][query] == pytest.approx(sum(hits[:relevant]) / relevant)
            average = sum(sum(hits[: at + 1]) / (at + 1) for at in range(relevant) if hits[at]) / relevant
            assert kept["map_at_r"][query] == pytest.approx(average)
        for name in OF_QUERIES[:-1]:
            assert np.flatnonzero(~np.isnan(kept[name])).tolist() == queries
            assert model["metrics"][name] == pytest.approx(np.nanmean(kept[name]))


def test_a_class_without_queries_is_in_no_comparison_by_class(kinds: Kinds) -> None:
    records = Records(RunFolder(kinds(KIND).runs, "small"))
    for entry in chain.from_iterable(class_scores(records, "map_at_r").values()):
        assert entry.labels_C.tolist() == list(range(7))
        assert entry.counts_C.tolist() == [3] * 7


def test_metrics_that_cannot_be_computed_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    file.write_text(json.dumps(by_group(tmp_path, metrics={"test": ["recall_at_40"]})))
    said = refusal("run", file, "--runs", tmp_path / "runs")
    assert "k = 40 needs a gallery of 40 images and that of the 8 test classes has 35" in said
    assert not (tmp_path / "runs").exists()


# Three test lists.


def test_one_training_is_scored_on_three_lists(kinds: Kinds) -> None:
    """Compare with plain loops over the stored neighbours: the nearest one in the list decides."""
    search = kinds("test lists")
    opening = search.opening
    assert len(opening["scores"]) == 2
    test = json.loads((search.folder / "split.json").read_text())["test"]
    folder = search.folder / "test" / opening["id"]
    lists = Path(search.content["dataset"]["root"]) / "train_test_split"
    dataset = Records(RunFolder(search.runs, "small")).config.dataset.source
    for model in opening["scores"]:
        assert list(model["metrics"]) == OF_LISTS
        neighbours = RetrievalFile.read(folder / FOLDER / model["per_image"]).neighbours_QK
        with np.load(folder / model["per_image"]) as content:
            names = [test[label] for label in content["labels"]]
            kept = {name: content[name] for name in content.files if name != "keys"}
        parts = {name: torch.from_numpy(part) for name, part in kept.items()}
        assert kept_metrics(parts, test, dataset, OF_LISTS) == pytest.approx(model["metrics"]), "verify compares all"
        for subset, file in LISTS.items():
            vehicles = {line.split()[1] for line in (lists / f"{file}.txt").read_text().splitlines()}
            within = [name in vehicles for name in names]
            assert sum(within) == {"small": 16, "medium": 32, "large": 48}[subset]
            hits = []
            for query, ranked in enumerate(neighbours):
                in_list = [row for row in ranked if within[row]]
                if within[query] and in_list:
                    hits.append((query, names[in_list[0]] == names[query]))
            assert len(hits) > 0.8 * sum(within), "eight neighbours are kept"
            if (name := f"recall_at_1-{subset}") in OF_LISTS:
                assert all(kept[name][query] == hit for query, hit in hits)
                assert np.isnan(kept[name]).tolist() == [not inside for inside in within]
                assert model["metrics"][name] == pytest.approx(np.nanmean(kept[name]))
        assert model["metrics"]["recall_at_1-large"] == model["metrics"]["recall_at_1"], "the large list has them all"
        assert model["metrics"]["recall_at_1-small"] >= model["metrics"]["recall_at_1"], "a smaller gallery is easier"


def test_a_subset_is_compared_on_its_classes(kinds: Kinds) -> None:
    folder = RunFolder(kinds("test lists").runs, "small")
    counts = {
        metric: [
            entry.counts_C.tolist()
            for entry in chain.from_iterable(class_scores(Records(folder), metric).values())
            if np.isfinite(entry.sums_C).all()
        ]
        for metric in ("map_at_r", "map_at_r-small")
    }
    assert counts == {"map_at_r": [[4] * 12] * 2, "map_at_r-small": [[4] * 4] * 2}


# Superclasses.


def test_scores_of_superclasses_agree_with_scikit_learn(kinds: Kinds) -> None:
    search = kinds("superclasses")
    assert len(search.opening["scores"]) == 2
    for model in search.opening["scores"]:
        with np.load(search.folder / "test" / search.opening["id"] / model["per_image"]) as content:
            folders = [key.partition("_final/")[0] for key in content["keys"].tolist()]  # one folder per superclass
            clusters = content["clusters_super"]
        assert len(set(folders)) == len(set(clusters.tolist())) == 2
        assert model["metrics"]["nmi_super"] == pytest.approx(normalized_mutual_info_score(folders, clusters))


def test_vectors_have_queries_a_gallery_and_distractors(tmp_path: Path) -> None:
    """The untrained row is the vectors as they are: cosines of queries and gallery by NumPy, distractors among it."""
    content = on_features(tmp_path, search={"trials": 1}, **SHORT)
    with np.load(path := Path(content["dataset"]["file"])) as stored:
        embeddings, labels = stored["embeddings"], stored["labels"]
    numbers = np.array([int(label.split("-")[1]) for label in labels])
    parts = np.where(numbers < 8, "train", np.where(numbers >= 14, "distractor", "gallery")).astype("<U10")
    queries = np.flatnonzero((parts == "gallery") & (np.arange(160) % 10 < 3))
    parts[queries] = "query"
    np.savez(path, embeddings=embeddings, labels=labels, parts=parts)
    (search,) = run_here(tmp_path / "runs", [content])
    gallery = np.flatnonzero((parts == "gallery") | (parts == "distractor"))
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    nearest = gallery[(unit[queries] @ unit[gallery].T).argmax(axis=1)]
    assert (numbers[nearest] >= 14).any(), "a distractor is nearest to some query"
    untrained = summarise(search).untrained
    assert untrained is not None
    assert untrained.test is not None
    assert untrained.test["recall_at_1"].mean == pytest.approx((numbers[nearest] == numbers[queries]).mean())  # type: ignore[union-attr]
    search.close()


# Constraints.


def test_the_choice_meets_the_constraint_that_the_default_does_not(kinds: Kinds) -> None:
    search = kinds("constraints")
    (row,) = search.summary["losses"].values()
    assert row["default"]["params"]["weight"] == 0.9
    assert row["tuned"]["params"]["weight"] < 0.5
    selected = json.loads((search.folder / "selection.json").read_text())
    assert "only configurations with weight < 0.5 are chosen" in selected["rule"]
    (choice,) = selected["chosen"].values()
    assert choice["params"]["weight"] == pytest.approx(choice["measured"]["weight"])  # float32
    assert [len(choice["values"]), choice["failed"]] == [2, 0]
    assert f"its weight is {choice['measured']['weight']:.4g}" in row["choice"]


def test_without_a_configuration_that_meets_it_nothing_is_chosen(tmp_path: Path) -> None:
    content = trade("never", {"objective": QUALITY, "trials": 2, "constraints": {WEIGHT: "> 2"}})
    with pytest.raises(FailedLosses, match=r"of trial \d, weight is [\d.]+, which must be > 2\.\nNothing was chosen"):
        run_here(tmp_path, [content])
    assert not (tmp_path / "never/selection.json").exists()


def test_costs_of_a_network_are_measured(search_file: SearchFile, tmp_path: Path) -> None:
    content = search_file(
        losses=["triplet"],
        space={"triplet": {"margin": 0.2}, "model": {"embedding_dim": [8, 64]}},
        search={"trials": 3, "pruner": "none", "constraints": {"size_mb": "> 0", "embed_ms": "> 0"}},
        training={"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        stages=["search", "select"],
        selection={"finalists": 1, "seeds": 1},
    )
    (search,) = run_here(tmp_path, [content])
    trials = search.trials("triplet", Stage.SEARCH)
    sizes = {}
    for trial in trials:
        (record,) = epochs_of(trial)
        assert record["metrics"]["embed_ms"] > 0
        sizes[trial.params["model.embedding_dim"]] = record["metrics"]["size_mb"]
        best = tmp_path / f"small/trials/triplet/{trial.number:04d}" / str(record["checkpoint"])
        if best.exists():
            tensors, _ = read_network(best)
            assert record["metrics"]["size_mb"] == sum(entry.nbytes for entry in tensors.values()) / 1e6
    assert len(sizes) == 2
    assert sizes[64] > sizes[8]
    search.close()
    holdout_here("verify", "small", "--runs", tmp_path, "--retrain", "triplet:1")


@pytest.mark.parametrize(
    "freeze", [{"model": {"freeze": "backbone"}}, {"space": {"model": {"freeze": [None, "backbone"]}}}]
)
def test_the_time_of_a_frozen_network_is_not_measured(search_file: SearchFile, freeze: dict[str, Any]) -> None:
    changes = {**freeze, "model": {"weights": "weights.pth", **freeze.get("model", {})}}
    (sentence,) = validate_config(search_file(search={"constraints": {"embed_ms": "< 5"}}, **changes)).sentences
    assert sentence.startswith("search.constraints: embed_ms is the time of the whole network")
    assert not validate_config(search_file(**changes)).sentences


# Trainings that cannot be tested.

OWN = {
    "name": "small", "training": {"epochs": 1}, "dataset": {"name": "support.own_trainings:ManyRecords"},
    "search": {"trials": 3}, "final": {"seeds": 2}, "resources": {"engine": "in_process"},
}  # fmt: skip


def test_another_model_is_found_before_anything_is_spent_and_again_before_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the code corrected the same command goes on; final trainings are kept."""
    only_records(monkeypatch)
    content = {**OWN, "trainable": "support.own_trainings:ForgetsIfAsked"}
    file, folder = write_search(tmp_path / "small.yaml", content), tmp_path / "runs" / "small"
    run = ("run", file, "--runs", folder.parent)
    monkeypatch.setenv("FORGETS", "1")
    refused = refusal(*run, code=1)
    assert "No model of small/forgets_if_asked can be tested (CODE_ERROR in 1 of 1)" in refused
    assert "run the same search again" in refused
    monkeypatch.delenv("FORGETS")
    holdout_here(*run, "--set", "stages=[search, select]")
    monkeypatch.setenv("FORGETS", "1")
    refused = refusal(*run, code=1)
    assert "2 of 2 final models cannot be tested, first small/forgets_if_asked@final trial 0" in refused
    assert "The test classes were not opened" in refused
    assert not Ledger(folder.parent / "test_openings.jsonl").openings()
    monkeypatch.delenv("FORGETS")
    trained = sorted(folder.rglob("best.safetensors"))
    holdout_here(*run)
    assert sorted(folder.rglob("best.safetensors")) == trained
    holdout_here("verify", "small", "--runs", folder.parent)


def test_final_trainings_that_fail_open_no_test_and_are_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_records(monkeypatch)
    content = {**OWN, "trainable": "support.own_trainings:FailsOnAllIfAsked", "final": {"seeds": 1, "train_on": "all"}}
    file, runs = write_search(tmp_path / "small.yaml", content), tmp_path / "runs"
    monkeypatch.setenv("FAILS", "1")
    for more in ((), ("--allow-failed",)):
        refused = refusal("run", file, "--runs", runs, *more, code=1)
        assert "eight classes" in refused
        assert "classes stay sealed" in refused or "were not opened" in refused
    assert not Ledger(runs / "test_openings.jsonl").openings()
    monkeypatch.delenv("FAILS")
    assert "Retrying" in holdout_here("run", file, "--runs", runs).stderr
    holdout_here("verify", "small", "--runs", runs)
