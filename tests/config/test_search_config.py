"""The search file: its defaults, and all mistakes of a file at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.small_search import draw_folder

from search.config.recipes import read_search
from search.config.search_config import parse_config
from search.config.yaml_file import apply_settings, parse_yaml
from search.plan.make_plan import make_plan
from trainables.losses import loss_row
from trainables.mistakes import Mistakes

SearchFile = Callable[..., dict[str, Any]]

CONTRACT = """
name: quickstart
dataset: {name: glyphs, root: null, store_size: 256, cache: null}
split: {ratio: 0.9, seed: 0, folds: null, merge: null}
model: {backbone: convnet, weights: null, embedding_dim: 64, pooling: avg, freeze_bn: false, layer_norm: false,
        head_init: kaiming_normal}
training: {epochs: 8, batch_size: 120, sampler: balanced, images_per_class: 5, image_size: 32, resize_size: null,
           resize_square: false, augment: crop_flip, optimizer: adamw, lr: 1.0e-3, head_lr: null, proxy_lr: null,
           weight_decay: 1.0e-4, schedule: {step: null, milestones: [], gamma: 0.5}, warmup_epochs: 0, clip_grad: 10,
           precision: auto}
losses: [proxy_anchor, mpa, pnp]
search: {trials: 16, epochs: null, sampler: tpe, pruner: asha, objective: map_at_r, seed: 0,
         max_concurrent: null, storage: null}
metrics: {validation: [recall_at_1, map_at_r], test: all, gallery: validation}
resources: {cpus_per_trial: 1, gpus_per_trial: 0}
selection: {finalists: 3, on: auto, better_by: 1, seeds: null}
final: {seeds: 3, train_on: train}
noise: {loss: null, configuration: default, seeds: 5, splits: 0}
checkpoints: {storage_path: null, max_gb: null}
tracking: {uri: null, experiment: null}
stages: [search, select, test]
ship: []
"""


def sentences(content: dict[str, Any], runs: Path | None = None) -> list[str]:
    """Return the mistakes of a search file, in its form and beyond."""
    with pytest.raises(Mistakes) as caught:  # noqa: PT012, one of the two refuses
        config = parse_config(content)
        make_plan(config, runs or Path("/nonexistent-runs"))
    return list(caught.value.sentences)


def test_the_defaults_are_those_of_the_contract() -> None:
    shortest = parse_config(
        {"name": "quickstart", "dataset": {"name": "glyphs"}, "losses": ["proxy_anchor", "mpa", "pnp"]}
    )
    assert shortest == parse_config(parse_yaml(CONTRACT, "contract"))


def test_the_example_of_equal_budgets_searches_the_same_of_every_training(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "examples" / "equal_budgets.yaml"
    content = read_search(file, [f"dataset.root={draw_folder(tmp_path / 'images', classes=32)}"])
    plan = make_plan(parse_config(content), tmp_path / "runs")
    assert len(plan.spaces) == 14
    for loss, space in plan.spaces.items():
        assert "training.lr" in space.searched
        assert ("training.proxy_lr" in space.searched) == (loss_row(loss).proxy_lr is not None)


def test_the_resolved_file_is_read_back_as_itself(search_file: SearchFile) -> None:
    config = parse_config(search_file(space={"pnp": {"alpha": [2, 4]}}))
    assert parse_config(yaml.safe_load(config.to_yaml())) == config


def test_numbers_without_a_point_are_numbers() -> None:
    assert parse_yaml("lr: 1e-3", "text") == {"lr": 0.001}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2", "has the key 'a' twice"),
        ("a: [", "not valid YAML"),
        ("!!python/object/apply:os.getcwd []", "not valid YAML"),
    ],
)
def test_broken_yaml_is_refused_in_a_sentence(text: str, expected: str) -> None:
    with pytest.raises(Mistakes, match=expected):
        parse_yaml(text, "file.yaml")


def test_settings_reach_into_sections() -> None:
    content = apply_settings({"search": {"trials": 3}}, ["search.trials=5", "training.lr=1e-2", "losses=[mpa]"])
    assert content == {"search": {"trials": 5}, "training": {"lr": 0.01}, "losses": ["mpa"]}
    with pytest.raises(Mistakes, match=r"needs key\.path=value"):
        apply_settings({}, ["search.trials"])


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"name": "a/b"}, "name: a search's name names a folder"),
    ({"name": "../up"}, "name: a search's name names a folder"),
    ({"losses": []}, "losses: "),
    ({"losses": ["mpa", "mpa"]}, "mpa is given more than once"),
    ({"losses": ["proxy_ancor"]}, "did you mean proxy_anchor"),
    ({"optimiser": {}}, "optimiser: no such section"),
    ({"search": {"trails": 3}}, "search.trails: no such key (did you mean search.trials?)"),
    ({"training": {"epoch": 3}}, "training.epoch: no such key (did you mean training.epochs?)"),
    ({"search": {"trials": 0}}, "search.trials: must be at least 1; it is 0"),
    ({"search": {"trials": "3"}}, "search.trials: must be a whole number; it is '3'"),
    ({"search": {"trials": True}}, "search.trials: "),
    ({"search": {"sampler": "tpu"}}, "search.sampler: "),
    ({"search": {"objective": "map"}, "metrics": {"validation": ["recal_at_1"]}}, "recal_at_1 is not known"),
    ({"search": {"objective": "accuracy"}}, "accuracy is not known"),
    ({"metrics": {"gallery": "training"}}, "metrics.gallery: "),
    (
        {"metrics": {"gallery": "training_half"}, "search": {"objective": "nmi"}},
        "metrics.gallery is training_half and search.objective nmi, which ranks no images",
    ),
    (
        {"metrics": {"validation": ["nmi_super"], "test": ["recall_at_1", "f1_super"]}},
        "metrics: nmi_super, f1_super need a data set that groups its classes into superclasses, as sop does, and",
    ),
    (
        {"metrics": {"test": ["recall_at_1-small", "map_at_r"]}},
        "metrics.test: recall_at_1-small is computed on a part of the test classes that folder does not have; it has "
        "none.",
    ),
    ({"metrics": {"validation": ["recall_at_1-small"]}}, "metrics: recall_at_1-small is computed on a part of the"),
    ({"metrics": {"test": ["recal_at_1-small"]}}, "recal_at_1-small is not known"),
    ({"search": {"objective": "nmi_super"}}, "metrics: nmi_super need a data set that groups its classes"),
    ({"training": {"lr": -1}}, "training: lr must be positive and finite; it is -1"),
    ({"training": {"lr": float("nan")}}, "training.lr: must be finite; it is nan"),
    ({"training": {"schedule": {"step": 0}}}, "schedule.step must be at least 1 epoch"),
    ({"training": {"schedule": {"milestones": [20, 8]}}}, "each later than the one before; they are [20, 8]"),
    ({"training": {"schedule": {"step": 5, "milestones": [8]}}}, "give one of them and leave the other null or empty"),
    ({"training": {"resize_size": 8}}, "resize_size must be at least image_size"),
    ({"training": {"resize_size": 400}}, "dataset.store_size is 256 and the training resizes images to 400"),
    ({"training": {"sampler": "balance"}}, "training: sampler must be one of"),
    ({"training": {"batch_size": 100000}}, "training: A balanced batch of 100000"),
    ({"model": {"backbone": "resnet51"}}, "resnet51"),
    ({"model": {"weights": "/nonexistent.pt"}}, "model.weights is '/nonexistent.pt', not a file"),
    ({"model": {"backbone": "resnet18", "weights": "imagenet"}}, "The ImageNet weights of resnet18 are not on this"),
    ({"dataset": {"name": "folder", "root": "/nonexistent"}}, "'/nonexistent', which does not exist"),
    ({"dataset": {"name": "glyph"}}, "did you mean glyphs?"),
    ({"dataset": {"name": "glyphs", "root": "/tmp"}}, "root: glyphs has no such option"),
    ({"split": {"ratio": 1.5}}, "split.ratio: "),
    ({"split": {"folds": 1}}, "split.folds: "),
    ({"split": {"folds": 5}}, "split.folds is 5 and the training half has 8 classes"),
    ({"split": {"folds": 4, "ratio": 0.8}}, "split: folds is 4 and ratio 0.8; each fold validates on its own part"),
    ({"split": {"merge": 1}}, "split.merge: "),
    ({"split": {"label_noise": 1.0}}, "split.label_noise: "),
    ({"split": {"label_noise": -0.1}}, "split.label_noise: "),
    ({"selection": {"splits": 3}}, "selection: splits is 3 and seeds 2; the trainings of a finalist validate on the"),
    (
        {"selection": {"splits": 2}, "split": {"folds": 4}},
        "selection.splits is 2 and split.folds 4; in folds every training class validates already",
    ),
    ({"split": {"merge": 6}}, "split.merge is 6 and 6 classes train at once"),
    ({"split": {"merge": 2}}, "training: A balanced batch of 20 with 5 images a class needs 4 classes, and the"),
    ({"space": {"triplet": {"margin": 1}}}, "space.triplet: this is not one of the search's losses"),
    ({"space": {"pnp": {"alfa": [1]}}}, "space.pnp.alfa: there is no such hyperparameter"),
    ({"space": {"pnp": {"alpha": 0.5}}}, "space.pnp.alpha: "),
    ({"space": {"pnp": {"alpha": {"low": 8, "high": 2}}}}, "space.pnp.alpha: "),
    ({"space": {"pnp": {"variant": {"low": 1, "high": 2}}}}, "space.pnp.variant: a range needs numbers"),
    ({"space": {"training": {"batch_size": [1]}}}, "space.training.batch_size: there is no such hyperparameter"),
    ({"resources": {"gpus_per_trial": 1}}, "resources.gpus_per_trial is 1 and this machine has"),
    (
        {"resources": {"gpus_per_trial": 2}},
        "resources.gpus_per_trial: must be 0, a part of a GPU such as 0.5, or 1, since trials in parallel use further "
        "GPUs; it is 2.",
    ),
    ({"resources": {"cpus_per_trial": 9999}}, "resources.cpus_per_trial is 9999 and this machine has"),
    ({"search": {"storage": "redis://here"}}, "search.storage must begin with one of"),
    ({"search": {"storage": "sqlite:////nonexistent/study.db"}}, "search.storage: the folder /nonexistent"),
    ({"search": {"storage": "postgresql://me:secret@here/db"}}, "holds a password"),
    ({"search": {"storage": "postgresql://me:${NOT_SET_ANYWHERE}@here/db"}}, "NOT_SET_ANYWHERE, which is not set"),
    ({"tracking": {"uri": "http://127.0.0.1:9/"}}, "no MLflow server answers at http://127.0.0.1:9/"),
    ({"metrics": {"validation": ["recall_at_500"]}}, "k = 500 needs more than 500 images"),
    ({"stages": ["test"]}, "stages: "),
    ({"stages": ["search", "noise"]}, "stages: "),
    ({"noise": {"seeds": 1}}, "noise.seeds: "),
    ({"noise": {"loss": "mpa"}}, "noise.loss is 'mpa', which is not one of the search's losses (proxy_anchor, pnp)"),
    ({"noise": {"configuration": {"margin": "wide"}}}, "noise.configuration.margin: proxy_anchor has no value 'wide'"),
    ({"noise": {"configuration": {"alfa": 1}}}, "noise.configuration.alfa: proxy_anchor has no value 1"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), MISTAKES, ids=[expected[:40] for _, expected in MISTAKES])
def test_a_mistake_is_one_clear_sentence(
    search_file: SearchFile, changes: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    found = sentences(search_file(**changes), tmp_path / "runs")
    assert any(expected in sentence for sentence in found), found
    assert all(sentence.endswith(".") for sentence in found), found
    assert not list(tmp_path.iterdir())


def test_secrets_do_not_stand_in_the_sentences(search_file: SearchFile) -> None:
    found = sentences(search_file(search={"storage": "postgresql://me:secret@here/db"}))
    assert not any("secret" in sentence for sentence in found), found


def test_all_mistakes_come_at_once(search_file: SearchFile) -> None:
    content = search_file(
        name="a/b", search={"trials": 0, "sampler": "tpu"}, model={"embedding_dim": 0}, training={"epoch": 3, "lr": -1}
    )
    found = "\n".join(sentences(content))
    for part in (
        "name: ",
        "search.trials",
        "search.sampler",
        "embedding_dim",
        "training.epoch",
        "training: lr",
    ):
        assert part in found, found


@pytest.mark.parametrize(
    ("section", "content", "sentence"),
    [
        ("dataset", {"name": "cub200"}, "dataset.root is missing: give the folder that holds the images."),
        (
            "model",
            {"embedding_dim": 0},
            "model.embedding_dim must be a whole number between 1 and 65536, or null for the backbone's; it is 0.",
        ),
        ("name", "a/b", "name: a search's name names a folder: up to 100 letters, digits"),
    ],
)
def test_a_mistake_of_a_required_key_is_said_once(
    search_file: SearchFile, section: str, content: Any, sentence: str
) -> None:
    """A wrong key is not also reported as missing, and a sentence that begins with its key gets no second one."""
    (found,) = sentences(search_file(**{section: content}))
    assert found.startswith(sentence)


def test_a_missing_key_beside_a_wrong_one_is_said_once() -> None:
    assert sentences({"name": "x", "dataset": None}) == [
        "dataset: must be keys and values; it is None.",
        "losses: missing; this key is required.",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({1: 2}, "1: no such section; remove it."),
        ({"training": {1: 2}}, "training.1: no such key; remove it."),
        ({"training": [1]}, "training: must be keys and values; it is [1]."),
        ({"metrics": {"test": 3}}, "metrics.test: must be 'all' or must be a list; it is 3."),
        (
            {"noise": {"configuration": 3}},
            "noise.configuration: must be 'default' or must be keys and values; it is 3.",
        ),
        ({"model": {"embedding_dim": 2.5}}, "model.embedding_dim: must be a whole number; it is 2.5."),
        ({"model": {"freeze_bn": "stats"}}, "model.freeze_bn must be false, statistics or true; it is 'stats'."),
        (
            {"model": {"head_init": "normal"}},
            "model.head_init must be one of kaiming_normal, linear, truncated_normal; it is 'normal' (did",
        ),
        ({"losses": "mpa"}, "losses: must be a list; it is 'mpa'."),
        ({"losses": None}, "losses: must be a list; it is None."),
        ({"dataset": {"root": "/tmp"}}, "dataset.name: missing; this key is required."),
        ({"final": {"train_on": "both"}}, "final.train_on: must be 'train' or 'all'; it is 'both'."),
        (
            {"stages": ["serch"]},
            "stages: must be 'noise', 'search', 'select' or 'test'; it is 'serch' (did you mean search?).",
        ),
    ],
)
def test_a_wrong_form_is_said_in_plain_words(search_file: SearchFile, content: dict[Any, Any], said: str) -> None:
    with pytest.raises(Mistakes) as caught:
        parse_config({**search_file(), **content})
    (sentence,) = caught.value.sentences
    assert sentence.startswith(said)


def test_mistakes_beyond_the_form_come_at_once(search_file: SearchFile, tmp_path: Path) -> None:
    content = search_file(
        resources={"cpus_per_trial": 9999},
        space={"pnp": {"alpha": 0.5}, "triplet": {}},
        search={"storage": "redis://here"},
        training={"batch_size": 100000},
    )
    found = "\n".join(sentences(content, tmp_path / "runs"))
    for part in ("cpus_per_trial", "space.pnp.alpha", "space.triplet", "search.storage", "A balanced batch"):
        assert part in found, found


def test_a_cluster_that_does_not_answer_is_said_at_once(
    search_file: SearchFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    (sentence,) = sentences(search_file())
    assert "RAY_ADDRESS is '127.0.0.1:9' and nothing answers there (Connection refused)" in sentence
