"""The networks without training, against the bare network, float64 loops and scikit-learn."""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow import MlflowClient
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from support.bare_networks import BACKBONE, FEATURES, TRAINING, bare_features, save_convnet
from support.commands import holdout_here, plain, write_search
from support.expected_metrics import of_queries
from support.finished_search import finish, run_here
from support.kinds import Finished
from support.small_search import small_search
from support.tampered import Copied, array, entry
from support.without_ray import only_records

from search.plan.runs import RunFolder, stored_split
from search.report.comparison import compare
from search.report.comparison_tables import text_tables
from search.report.results import Summary, stored_summary
from search.selection import Selection
from search.stages import Role

Floats = NDArray[np.float64]


def search_file(images: Path, weights: Path, **changes: Any) -> dict[str, Any]:
    return small_search(
        images,
        **{
            "model": {"backbone": BACKBONE, "weights": str(weights), "freeze": "backbone", "embedding_dim": 8},
            "training": TRAINING,
            "losses": ["pnp", "proxy_anchor"],
            "search": {"trials": 2},
            "selection": {"finalists": 1, "seeds": 1},
            "metrics": {"test": ["map_at_r", "recall_at_1", "nmi"]},
            **changes,
        },
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_convnet(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def runs(image_folder: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished search with a frozen backbone; tests must not change it."""
    runs = tmp_path_factory.mktemp("untrained") / "runs"
    return finish(runs, search_file(image_folder, weights))


# The independent path: pixels cut with Pillow, the bare network, cosine neighbours by float64 loops.


def features(images: Path, names: Sequence[str], weights: Path) -> tuple[Floats, list[str]]:
    paths = [path for name in names for path in sorted((images / name).iterdir())]
    return bare_features(paths, weights), [path.parent.name for path in paths]


def retrieval(embeddings: Floats, labels: Sequence[str], queries: int | None = None) -> dict[str, float]:
    """Return Recall@1 and MAP@R of the first ``queries`` images among all."""
    rows, numbers = range(len(labels)), [sorted(set(labels)).index(label) for label in labels]
    galleries = {query: [row for row in rows if row != query] for query in rows[:queries]}
    return {
        name: float(np.mean([*of_queries(embeddings, numbers, name, galleries).values()]))
        for name in ("recall_at_1", "map_at_r")
    }


def whitened(images: Path, names: Sequence[str], weights: Path, dimensions: int) -> PCA:
    return PCA(dimensions, whiten=True, svd_solver="full").fit(features(images, names, weights)[0])


def agree(found: Mapping[str, float], expected: Mapping[str, float]) -> None:
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name


def means(test: Any) -> dict[str, float]:
    return {name: entry.mean for name, entry in test.items()}


def test_untrained_is_the_bare_network_and_whitened_is_scikit_learns(
    runs: Path, image_folder: Path, weights: Path
) -> None:
    folder = RunFolder(runs, "small")
    split, summary = stored_split(folder), stored_summary(folder)
    fitted = whitened(image_folder, split.train, weights, 8)
    untrained, white = summary.untrained, summary.whitened
    assert untrained is not None
    assert white is not None
    assert untrained.test is not None
    assert white.test is not None
    assert set(untrained.test) == {"map_at_r", "recall_at_1", "nmi"}
    for plain_values, white_values, names in (
        (untrained.validation, white.validation, split.validation),
        (means(untrained.test), means(white.test), split.test),
    ):
        raw, labels = features(image_folder, names, weights)
        agree(plain_values, retrieval(raw, labels))
        agree(white_values, retrieval(fitted.transform(raw), labels))


@pytest.mark.parametrize(
    "changes",
    [
        {"split": {"folds": 2}},
        {
            "metrics": {"gallery": "training_half", "test": ["map_at_r", "recall_at_1"]},
            "final": {"seeds": 1, "train_on": "all"},
        },
    ],
)
def test_a_fine_tuned_search_has_baselines_on_every_split(
    changes: dict[str, Any], image_folder: Path, weights: Path, tmp_path: Path
) -> None:
    model = {"backbone": BACKBONE, "weights": str(weights), "embedding_dim": None}
    few = {"losses": ["pnp"], "search": {"trials": 1}, "final": {"seeds": 1}}
    file = search_file(image_folder, weights, model=model, **few | changes)
    (search,) = run_here(tmp_path / "runs", [file])
    split, summary = search.plan.split, Summary.load(search.plan.folder.summary)
    search.close()
    plain_values, white_values = [], []
    for train, validation in split.divisions:
        raw, labels = features(image_folder, validation, weights)
        queries, fitted = len(labels), rank(image_folder, train, weights)
        if "metrics" in changes:
            half, of_half = half_of(image_folder, train, weights, split.seed)
            raw, labels = np.concatenate((raw, half)), [*labels, *of_half]
        plain_values.append(retrieval(raw, labels, queries))
        white_values.append(retrieval(fitted.transform(raw), labels, queries))
    for found, values in ((summary.untrained, plain_values), (summary.whitened, white_values)):
        assert found is not None
        agree(found.validation, {name: np.mean([of[name] for of in values]) for name in values[0]})
    tested, labels = features(image_folder, split.test, weights)
    assert summary.whitened is not None
    assert summary.whitened.test is not None
    on_all = (*split.train, *split.validation) if "final" in changes else split.train
    fitted = rank(image_folder, on_all, weights)
    agree(means(summary.whitened.test), retrieval(fitted.transform(tested), labels))


def rank(images: Path, names: Sequence[str], weights: Path) -> PCA:
    """Return the whitening with the most components that the images allow."""
    raw, _ = features(images, names, weights)
    spread = np.linalg.svd(raw - raw.mean(0), compute_uv=False)
    return whitened(images, names, weights, int((spread > spread[0] * FEATURES * 2**-23).sum()))


def half_of(images: Path, names: Sequence[str], weights: Path, seed: int) -> tuple[Floats, list[str]]:
    raw, labels = features(images, names, weights)
    paths = [f"{name}/{path.name}" for name in names for path in sorted((images / name).iterdir())]
    order = {path: hashlib.sha256(f"{seed}:{path}".encode()).digest() for path in paths}
    of_class = [[path for path in paths if path.startswith(f"{name}/")] for name in names]
    kept = {path for found in of_class for path in sorted(found, key=order.__getitem__)[:5]}
    chosen = [place for place, path in enumerate(paths) if path in kept]
    return raw[chosen], [labels[place] for place in chosen]


# The rows.


def test_each_tuned_loss_is_tested_against_the_untrained_network(runs: Path) -> None:
    folder = RunFolder(runs, "small")
    comparison = compare([folder], [stored_summary(folder)])
    against = [pair for pair in comparison.pairs if pair.second.role is Role.BASELINE]
    assert [(pair.first.loss, pair.second.loss) for pair in against] == [
        ("pnp", "untrained"),
        ("proxy_anchor", "untrained"),
    ]
    values = {row.key: row.test["map_at_r"].mean for row in comparison.rows if row.test}
    for pair in against:
        assert pair.difference == pytest.approx(values[pair.first] - values[pair.second])
        assert pair.seeds == 2
    frozen = Selection.load(folder.selection).family
    assert {frozenset((pair.first, pair.second)) for pair in comparison.pairs} == frozen.pairs
    assert not [warning for warning in comparison.warnings if "chosen after" in warning]
    table = text_tables(comparison)[-1]
    for pair in against:
        (row,) = [row for row in table.rows if row[0] == f"{pair.first.loss} − untrained"]
        assert row[1] == f"{100 * pair.difference:+.1f}"
        assert (row[-1] in ("higher", "lower")) == pair.differ


def test_without_weights_nothing_is_untrained(kinds: Callable[[str], Finished]) -> None:
    folder = RunFolder(kinds("images").runs, "small")
    content = json.loads(folder.summary.read_text())
    assert content["untrained"] is None
    assert content["whitened"] is None
    assert not folder.baselines.exists()
    assert json.loads(folder.selection.read_text())["baselines"] is None
    assert all(row.role is not Role.BASELINE for row in Summary.load(folder.summary).rows)


# Records.


def verified(copied: Copied, code: int) -> str:
    done = holdout_here("verify", "small", "--runs", copied.runs, code=code)
    return done.stdout + plain(done.stderr)


def test_verify_passes_and_names_the_baselines(runs: Path, tmp_path: Path) -> None:
    text = verified(Copied(runs, tmp_path / "runs"), 0)
    assert "ok  baselines.json" in text
    said = "of convnet.pth; left out fc.weight, fc.bias"
    assert json.loads((runs / "small" / "baselines.json").read_text())["loaded"].endswith(said)
    assert "the networks without training" in text


def _scores(copied: Copied) -> Path:
    return next(copied.path.glob("test/*/untrained@*.npz"))


OF_BASELINE = "openings/0/baselines/0/metrics/map_at_r"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (entry("baselines.json", "validation/untrained/map_at_r", 0.9), "baselines.json was changed"),
        (lambda copied: (copied.path / "baselines.json").unlink(), "baselines.json is missing"),
        (lambda copied: (copied.path / "whitened.safetensors").write_bytes(b""), "whitened.safetensors is missing"),
        (entry("test.json", OF_BASELINE, 0.99), "untrained@baseline.npz map_at_r: 0.99 is stored"),
        (entry("test.json", "openings/0/baselines", []), "baselines: "),
        (array("map_at_r", ..., lambda values: values * 0.5, _scores), "untrained@baseline.npz map_at_r: "),
        (entry("summary.json", "untrained/validation/map_at_r", 0.99), "summary.json untrained.validation.map_at_r: 0"),
    ],
)
def test_verify_finds_a_changed_baseline(change: Any, found: str, runs: Path, tmp_path: Path) -> None:
    copied = Copied(runs, tmp_path / "runs")
    change(copied)
    assert found in verified(copied, 1)


# The order of things: validated once, before the search, and tested in the opening of the models.


def test_mlflow_has_the_baselines(runs: Path) -> None:
    holdout_here("sync", "small", "--runs", runs)
    summary = stored_summary(RunFolder(runs, "small"))
    client = MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], "tags.`holdout.kind` = 'loss'")
    by_loss = {run.data.tags["holdout.loss"]: run for run in found}
    assert by_loss.keys() == {"untrained", "whitened", "pnp", "proxy_anchor"}
    for name, baseline in summary.baselines.items():
        assert baseline.test is not None
        run = by_loss[name]
        assert run.info.status == "FINISHED"
        assert run.data.metrics["search/map_at_r"] == baseline.validation["map_at_r"]
        assert run.data.metrics["test/map_at_r"] == baseline.test["map_at_r"].mean
        assert run.data.params["model.backbone"] == BACKBONE
    tags = by_loss["pnp"].data.tags
    assert "holdout.pair.pnp.tuned.untrained.baseline" in tags


def test_nothing_of_the_test_classes_is_read_before_the_choice(
    image_folder: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images of the test classes cannot be decoded until the choice is frozen."""
    only_records(monkeypatch)
    images, hidden, runs = tmp_path / "images", tmp_path / "hidden", tmp_path / "runs"
    shutil.copytree(image_folder, images)
    few = {"losses": ["pnp"], "final": {"seeds": 1}, "resources": {"engine": "in_process"}}
    content = search_file(images, weights, **few, stages=["search", "select"])
    file = write_search(tmp_path / "search.yaml", content)
    folder = RunFolder(runs, "small")
    shutil.copytree(images, hidden)
    for name in sorted(path.name for path in images.iterdir())[8:]:
        for path in (images / name).iterdir():
            path.write_bytes(b"sealed")
    holdout_here("run", file, "--runs", runs)
    assert folder.selection.exists()
    summary = stored_summary(folder)
    assert summary.untrained is not None
    assert summary.untrained.test is None
    (first, *_) = compare([folder], [summary]).rows
    assert (first.search_value, first.test) == (summary.untrained.validation["map_at_r"], None)
    assert Selection.load(folder.selection).baselines is not None
    shutil.rmtree(images)
    hidden.rename(images)
    holdout_here("test", "small", "--runs", runs)
    tested = stored_summary(folder).untrained
    assert tested is not None
    assert tested.test is not None
    agree(means(tested.test), retrieval(*features(images, stored_split(folder).test, weights)))


def test_changed_baselines_are_refused_before_the_opening(image_folder: Path, weights: Path, tmp_path: Path) -> None:
    runs, folder = tmp_path / "runs", RunFolder(tmp_path / "runs", "small")
    file = search_file(
        image_folder, weights, losses=["pnp"], stages=["search", "select"], resources={"engine": "in_process"}
    )
    finish(runs, file)
    path = write_search(tmp_path / "search.yaml", {**file, "stages": ["search", "select", "test"]})
    content = json.loads(folder.baselines.read_text())
    content["validation"]["untrained"]["map_at_r"] = 0.99
    folder.baselines.write_text(json.dumps(content))
    done = holdout_here("run", path, "--runs", runs, code=2)
    assert "baselines.json was changed (its digest does not match) since the choice was frozen" in plain(done.stderr)
    assert not folder.openings.exists()
