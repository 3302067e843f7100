"""The networks without training, against the bare network, float64 loops and scikit-learn; also as the recommended one.

The recommendation is named by every command, loaded, exported and registered.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from support.bare_networks import BACKBONE, FEATURES, TRAINING, bare_features, save_convnet
from support.commands import holdout_here, json_of, plain, printed, refusal, write_search
from support.expected_metrics import of_queries
from support.finished_search import recorded, run_here
from support.kinds import Kinds
from support.small_search import small_search, unreadable
from support.tampered import Copied
from support.without_ray import only_records

import holdout
from search.driver.make_plan import reopened
from search.driver.synchronise import make_projection, register
from search.engines.base import InProcess
from search.records import Ledger, Selection
from search.records.records import Records
from search.records.runs import RunFolder
from search.records.writable import open_search
from search.results.comparison import compare, summary_of
from search.results.summary import Summary
from search.stages import Role
from search.study.trial_queue import TrialQueue
from trainables.common.files import write_json

Floats = NDArray[np.float64]


def search_file(images: Path, weights: Path, **changes: Any) -> dict[str, Any]:
    return small_search(
        images,
        **{
            "model": {"backbone": BACKBONE, "weights": str(weights), "freeze": "backbone", "embedding_dim": 8},
            "training": TRAINING,
            "losses": ["pnp"],
            "search": {"trials": 1},
            "selection": {"finalists": 1, "seeds": 1},
            "final": {"seeds": 1},
            "metrics": {"test": ["map_at_r", "recall_at_1"]},
            **changes,
        },
    )


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_convnet(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def runs(kinds: Kinds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished search with a frozen backbone and a head that hardly learns."""
    return Copied(kinds("frozen backbone").runs, tmp_path_factory.mktemp("untrained") / "runs").runs


@pytest.fixture(scope="module")
def data(kinds: Kinds) -> tuple[Path, Path]:
    content = kinds("frozen backbone").content
    return Path(content["dataset"]["root"]), Path(content["model"]["weights"])


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


def scores(network: Any) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of a network on the validation classes and on the test classes."""
    return network.validation, {name: entry.mean for name, entry in network.test.items()}


def test_untrained_is_the_bare_network_and_whitened_is_scikit_learns(runs: Path, data: tuple[Path, Path]) -> None:
    folder, (images, weights) = RunFolder(runs, "small"), data
    split, summary = Records(folder).split, summary_of(Records(folder))
    fitted = whitened(images, split.train, weights, 8)
    plain_values, white_values = scores(summary.untrained), scores(summary.whitened)
    assert set(plain_values[1]) == {"map_at_r", "recall_at_1"}
    said = "of convnet.pth; left out fc.weight, fc.bias"
    assert json.loads(folder.baselines.read_text())["loaded"].endswith(said)
    for of_plain, of_white, names in zip(plain_values, white_values, (split.validation, split.test), strict=True):
        raw, labels = features(images, names, weights)
        agree(of_plain, retrieval(raw, labels))
        agree(of_white, retrieval(fitted.transform(raw), labels))


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
    (search,) = run_here(tmp_path / "runs", [search_file(image_folder, weights, model=model, **changes)])
    split, summary = search.plan.split, Summary.load(search.folder.summary)
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
        agree(scores(found)[0], {name: float(np.mean([of[name] for of in values])) for name in values[0]})
    tested, labels = features(image_folder, split.test, weights)
    on_all = (*split.train, *split.validation) if "final" in changes else split.train
    fitted = rank(image_folder, on_all, weights)
    agree(scores(summary.whitened)[1], retrieval(fitted.transform(tested), labels))


class ReplacesWeights(InProcess):
    """Trains in this process; afterwards the file of weights is replaced, if there is another one beside it."""

    weights: ClassVar[Path]

    def run(self, queue: TrialQueue, concurrent: int) -> None:
        super().run(queue, concurrent)
        if (other := self.weights.with_name("other.pth")).exists():
            other.rename(self.weights)


def test_other_weights_are_refused_before_another_trial_and_before_the_opening(
    image_folder: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_records(monkeypatch)
    ReplacesWeights.weights = path = tmp_path / "weights.pth"
    content = search_file(image_folder, path, resources={"engine": f"{__name__}:ReplacesWeights"})
    file, runs = write_search(tmp_path / "small.yaml", content), tmp_path / "runs"
    changed = {name: 2 * tensor for name, tensor in torch.load(weights).items()}

    def run(*words: str, code: int = 0) -> str:
        return plain(holdout_here("run", file, "--runs", runs, *words, code=code).stderr)

    shutil.copy(weights, path)
    run("--set", "stages=[search]")
    torch.save(changed, path)
    for words in (("--set", "search.trials=2", "--set", "stages=[search]"), ()):
        assert "whose content is not that with which the model was trained" in run(*words, code=2)
    torch.save(torch.load(weights), path)  # the same tensors in another file
    run("--set", "stages=[search, select]")
    torch.save(changed, path.with_name("other.pth"))
    assert "whose content is not that with which the model was trained" in run(code=2)
    assert not Ledger(RunFolder(runs, "small").openings).openings()
    shutil.copy(weights, path)
    run()
    assert RunFolder(runs, "small").test.exists()


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


def test_each_tuned_loss_is_tested_against_the_network_that_is_better_in_the_confirmation(runs: Path) -> None:
    folder = RunFolder(runs, "small")
    classes = json.loads(folder.baselines.read_text())["classes"]
    better = max(classes, key=lambda name: float(np.mean([*classes[name].values()])))
    comparison = compare([Records(folder)])
    (pair,) = [pair for pair in comparison.pairs if pair.second.role is Role.BASELINE]
    assert (pair.first.loss, pair.second.loss) == ("proxy_anchor", better)
    values = {row.key: row.test["map_at_r"].mean for row in comparison.rows if row.test}
    assert pair.difference == pytest.approx(values[pair.first] - values[pair.second])
    assert pair.seeds == 2
    frozen = Selection.load(folder.selection).family
    assert {tuple(sorted((pair.first, pair.second))) for pair in comparison.pairs} == {*frozen.pairs}
    assert not [warning for warning in comparison.warnings if "chosen after" in warning]


# The order of things: validated once, before the search, and tested in the opening of the models.


def test_nothing_of_the_test_classes_is_read_before_the_choice(
    image_folder: Path, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images of the test classes cannot be decoded until the choice is frozen."""
    only_records(monkeypatch)
    images, runs = tmp_path / "images", tmp_path / "runs"
    shutil.copytree(image_folder, images)
    content = search_file(images, weights, stages=["search", "select"], resources={"engine": "in_process"})
    file = write_search(tmp_path / "search.yaml", content)
    folder = RunFolder(runs, "small")
    with unreadable(*sorted(images.iterdir())[8:]):
        holdout_here("run", file, "--runs", runs)
        assert folder.selection.exists()
        summary = summary_of(Records(folder))
        assert summary.untrained is not None
        assert summary.untrained.test is None
        (first, *_) = compare([Records(folder)]).rows
        assert (first.search_value, first.test) == (summary.untrained.validation["map_at_r"], None)
        assert Selection.load(folder.selection).baselines is not None
        whole = folder.baselines.read_text()
        changed = json.loads(whole)
        changed["validation"]["untrained"]["map_at_r"] = 0.99
        write_json(folder.baselines, changed)
        said = refusal("test", "small", "--runs", runs)
        assert "baselines.json was changed (its digest does not match) since the choice was frozen" in said
        assert not Ledger(folder.openings).openings()
        folder.baselines.write_text(whole)
    holdout_here("test", "small", "--runs", runs)
    tested, expected = summary_of(Records(folder)).untrained, features(images, Records(folder).split.test, weights)
    agree(scores(tested)[1], retrieval(*expected))


# The recommended model.


def words(content: dict[str, Any]) -> str:
    return f"Recommended: the {content['loss']} network ({content['basis']})"


@pytest.fixture(scope="module")
def recommended(runs: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((runs / "small/selection.json").read_text())["recommended"]
    return content


def test_the_report_and_cards_begin_with_the_network_that_no_training_beats(
    runs: Path, recommended: dict[str, Any]
) -> None:
    assert recommended["loss"] in ("untrained", "whitened")
    assert recommended["number"] is None
    assert "no training is better: proxy_anchor, the best one, is " in recommended["basis"]
    folder, answer = RunFolder(runs, "small"), holdout.open("small", runs=runs).answer
    assert printed("run", folder.config, "--runs", runs).startswith(answer.recommended), "it writes what is missing"
    assert answer.recommended == f"{words(recommended)}."
    page = re.sub(r"</?(code|wbr)>", lambda tag: "`" if "code" in tag[0] else "", folder.report.read_text())
    assert page.index("Recommended: ") < page.index("<table")
    assert all(line in unescape(page) for line in answer.lines)
    for model in (folder.path / "models").iterdir():
        card = (model / "README.md").read_text()
        assert card.partition(f"# small: {model.name}\n\n")[2].splitlines()[0].endswith(f"{words(recommended)}.")


def test_mlflow_has_the_baselines_and_the_recommended_one_as_champion(runs: Path, recommended: dict[str, Any]) -> None:
    holdout_here("sync", "small", "--runs", runs)
    with closing(open_search(reopened(runs, "small"))) as search:
        registered = register(recorded(search), make_projection(search.plan), "small")
    client = MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")
    model, loss = client.get_registered_model("small"), recommended["loss"]
    assert registered["best"] == loss
    assert {alias: str(version) for alias, version in model.aliases.items()} == {
        "champion": registered["versions"][loss]
    }
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], "tags.`holdout.kind` = 'loss'")
    by_loss = {run.data.tags["holdout.loss"]: run.data for run in found}
    assert by_loss.keys() == {"untrained", "whitened", "proxy_anchor"}
    for name, baseline in summary_of(Records(RunFolder(runs, "small"))).baselines.items():
        assert baseline.test is not None
        assert by_loss[name].metrics["search/map_at_r"] == baseline.validation["map_at_r"]
        assert by_loss[name].metrics["test/map_at_r"] == baseline.test["map_at_r"].mean


def similarities(embeddings: Floats) -> Floats:
    unit: Floats = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    return unit @ unit.T


def test_networks_without_training_embed_and_the_recommended_one_is_exported(
    runs: Path, data: tuple[Path, Path], recommended: dict[str, Any], tmp_path: Path
) -> None:
    split, (images, weights) = Records(RunFolder(runs, "small")).split, data
    paths = [path for of_class in split.test[:3] for path in sorted((images / of_class).iterdir())]
    untrained = bare_features(paths, weights)
    of_scikit = whitened(images, split.train, weights, 8).transform(untrained)
    said = json_of("export", "small", "--to", tmp_path / "model", "--runs", runs)
    assert [(program["file"], program["reason"]) for program in said["programs"]] == [("model.onnx", None)]
    search = holdout.open("small", runs=runs)
    chosen = [holdout.load(tmp_path / "model", device="cpu"), search.best_model(device="cpu")]
    for name, expected in (("untrained", untrained), ("whitened", of_scikit)):
        opened = search.best_model(name, device="cpu")
        for model in (opened, *chosen) if name == recommended["loss"] else (opened,):
            embedded = model.embed(paths)
            assert embedded.shape == expected.shape
            np.testing.assert_allclose(similarities(embedded), similarities(expected), rtol=1e-4, atol=1e-4)
    assert words(recommended) in (tmp_path / "model/README.md").read_text()
