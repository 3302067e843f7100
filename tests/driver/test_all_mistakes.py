"""All mistakes of a search are reported at once, none of them false or repeated; those of a user's code among them."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support.own_parts import Greys
from support.refusals import sentences_of
from support.small_search import SearchFile

from search.config.yaml_file import with_value
from search.driver.make_plan import read_plan
from trainables.data.split import split_dataset

Row = tuple[dict[str, Any], tuple[str, ...], str]


def sentences(content: dict[str, Any], runs: Path) -> list[str]:
    found = list(sentences_of(lambda: read_plan(content, runs)))
    assert len(set(found)) == len(found)
    assert not runs.exists()
    return found


# A wrong entry, and beside it one that would be wrong beside the default that stands in its stead.
NOT_KNOWN: list[dict[str, Any]] = [
    {"training": {"batch_size": "20", "images_per_class": 7}},
    {"model": {"backbone": 5, "weights": "imagenet"}},
    {"split": {"folds": 4, "ratio": "0.9"}},
    {"dataset": {"name": "glyphs", "images_per_class": "many"}, "metrics": {"validation": ["recall_at_1000"]}},
    {"dataset": {"name": "folder", "root": "/nonexistent"}, "training": {"batch_size": 100000}},
    {"losses": ["proxy_anchr", "pnp"], "training_by_loss": {"proxy_anchor": {"lr": 0.1}}},
]


@pytest.mark.parametrize("changes", NOT_KNOWN, ids=[str(changes)[:60] for changes in NOT_KNOWN])
def test_nothing_is_said_of_a_default_that_stands_for_a_wrong_entry(
    search_file: SearchFile, changes: dict[str, Any], tmp_path: Path
) -> None:
    found = sentences(search_file(**changes), tmp_path / "runs")
    assert len(found) == 1, found


OF_DATA = ("dataset.images_per_class", "split.seed", "split.folds")
# Entries of a search file, the others that their mistake depends on, and how its sentence begins.
WRONG: list[Row] = [
    ({"colour": 1}, (), "colour: no such key"),
    ({"stages": ["test"]}, (), "stages: must be"),
    ({"dataset.store_size": 3}, (), "dataset.store_size: must be at least 8"),
    ({"dataset.colour": 1}, (), "dataset.colour: glyphs has no such option"),
    ({"dataset.images_per_class": 1}, ("dataset.centres",), "dataset.images_per_class is 1, but"),
    ({"split.folds": 2, "split.ratio": 0.5}, (), "split.folds is 2"),
    ({"model.head": "none"}, ("model.embedding_dim",), "model.head is none, which"),
    ({"model.freeze": "backbone", "model.head": "linear"}, ("model.weights",), "model.freeze is backbone and"),
    ({"model.lora": {"rank": 0}}, (), "model.lora.rank: must be"),
    ({"training.lr": "fast"}, (), "training.lr: must be a number"),
    ({"training.warmup_epochs": 99}, ("training.epochs",), "training.warmup_epochs must be at most"),
    ({"training.resize_size": 8}, ("training.image_size",), "training.resize_size must be at least image_size"),
    ({"training.schedule": {"milestones": [3, 2]}}, (), "training.schedule.milestones must be epochs, each later"),
    ({"training.schedule": {"decay": "linear", "step": 2}}, (), "training.schedule.decay is linear, and step or"),
    ({"training.schedule": {"step": 2, "milestones": [3]}}, (), "training.schedule.step is 2 and milestones are [3]"),
    ({"training.batch_size": 100_000}, OF_DATA, "training: A balanced batch of 100000"),
    ({"training.resize_size": 400}, ("dataset.store_size", "training.image_size"), "dataset.store_size is 256 and the"),
    ({"training_by_loss.pnp.warmup_epochs": 9}, ("training.epochs",), "training_by_loss.pnp.warmup_epochs must be"),
    ({"training_by_loss.pnp.lrr": 3}, (), "training_by_loss.pnp.lrr: no such key (did you mean lr?)"),
    ({"training_by_loss.mpa": {"lr": 0.1}}, (), "training_by_loss.mpa: this is not one of the search's losses"),
    ({"space.pnp.alfa": 1}, (), "space.pnp.alfa: there is no such"),
    ({"space.mpa": {}}, (), "space.mpa: this is not one of the search's losses"),
    ({"search.sampler": "gp"}, ("search.pruner",), "search.sampler is gp, which models complete trials alone"),
    ({"search.pruner": "nono"}, (), "search.pruner: must be one of"),
    ({"search.objective": "nmi", "metrics.gallery": "training_half"}, (), "metrics.gallery is training_half and"),
    ({"search.constraints.embed_ms": "fast"}, (), "search.constraints.embed_ms: it must be <, <=, > or >="),
    ({"search": {"constraints": {"nmi": "> 0"}, "sampler": "coordinate", "pruner": "none"}}, (), "search.sampler is"),
    ({"metrics.validation": []}, (), "metrics.validation: must have at least one entry"),
    ({"metrics.test": ["recall_at_10000"]}, OF_DATA, "metrics: k = 10000 needs a gallery of 10000 images and that of"),
    ({"resources.cpus_per_trial": 9999}, (), "resources.cpus_per_trial is 9999"),
    ({"resources.gpus_per_trial": 1}, (), "resources.gpus_per_trial is 1 and this machine has"),
    ({"tracking.uri": "ftp://x"}, (), "tracking.uri must begin with"),
    ({"checkpoints.storage_path": "x/y"}, (), "checkpoints.storage_path: must be an absolute path"),
]


@pytest.mark.parametrize("first", range(len(WRONG)), ids=lambda first: WRONG[first][2])
def test_no_mistake_hides_another(first: int) -> None:
    all_at_once(WRONG[first:] + WRONG[:first])


@given(st.lists(st.sampled_from(WRONG), min_size=2, max_size=6, unique_by=str))
def test_no_mistake_hides_one_drawn_beside_it(rows: list[Row]) -> None:
    all_at_once(rows)


def all_at_once(rows: list[Row]) -> None:
    """Check that a file with all ``rows`` but those that depend on an earlier one has their mistakes and no other."""
    entries, taken, begins = dict[str, Any](), set[str](), []
    for of_row, depends_on, beginning in rows:
        keys = {*of_row, *depends_on}
        pairs = [pair for one, other in itertools.product(keys, taken) for pair in ((one, other), (other, one))]
        if not any(f"{one}.".startswith(f"{other}.") for one, other in pairs):
            taken |= keys
            begins.append(beginning)
            entries |= of_row
    found = sentences_with(entries)
    assert not [sentence for sentence in found if not sentence.startswith((*begins,))]
    assert not [begin for begin in begins if sum(sentence.startswith(begin) for sentence in found) != 1]


def sentences_with(entries: dict[str, Any]) -> list[str]:
    """Return the mistakes of a small file with other ``entries``."""
    content: dict[str, Any] = {"name": "x", "dataset": {"name": "glyphs"}, "losses": ["pnp"]}
    for key, value in entries.items():
        content = with_value(content, key.split("."), value)
    found = sentences_of(lambda: read_plan(content, Path("/nonexistent-runs")))
    return [sentence for sentence in found if not sentence.startswith("--runs")]


@pytest.mark.parametrize(("row", "key"), [(row, key) for row in WRONG for key in row[1]], ids=str)
def test_no_mistake_is_reported_that_depends_on_a_wrong_entry(row: Row, key: str) -> None:
    (found,) = sentences_with({**row[0], key: {"no": "such"}})
    assert found.startswith(key)


@pytest.mark.parametrize(
    ("batches", "missing"),
    [
        ({"batch_size": 20, "images_per_class": 20}, "images of two classes"),
        ({"batch_size": 4, "images_per_class": 1, "sampler": "up_to"}, "two images of a class"),
    ],
)
def test_batches_without_pairs_are_refused_for_losses_of_pairs(
    search_file: SearchFile, tmp_path: Path, batches: dict[str, Any], missing: str
) -> None:
    (found,) = sentences(search_file(losses=["proxy_anchor", "triplet", "pnp"], training=batches), tmp_path / "runs")
    assert found.startswith(f"training: no batch holds {missing}, which triplet, pnp compare, so")


# What a user's data set lists or raises, or a metric or a network does, before anything is trained.

KEY = "0/0"


@dataclass(frozen=True, kw_only=True)
class Odd(Greys):
    """Greys of which some methods return something else."""

    answers: Any = field(default_factory=lambda: MappingProxyType({}))

    def __getattribute__(self, name: str) -> Any:
        answers = object.__getattribute__(self, "answers") if name in METHODS else {}
        return (lambda *_: answers[name]) if name in answers else object.__getattribute__(self, name)


METHODS = ("classes", "groups", "parts", "cameras", "superclasses", "test_subsets")
LISTED = Greys().classes()


def classes_as(change: Callable[[str, tuple[str, ...]], tuple[Any, Any]]) -> dict[str, Any]:
    return {"classes": dict(change(name, keys) for name, keys in LISTED.items())}


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (classes_as(lambda name, keys: (int(name[-1]), keys)), "names that are no text in UTF-8 (8): 0, 1, 2"),
        (classes_as(lambda name, keys: (name, (*keys, KEY))), "images that are listed twice (1): '0/0'"),
        (classes_as(lambda name, keys: (name, set(keys))), "8 classes whose images are in no tuple or list: grey-0"),
        ({"groups": {"none": "a"}}, "images of groups() that are not in classes() (1): 'none'"),
        ({"parts": {KEY: "Query"}}, "parts that are neither query nor gallery (1): 'Query'"),
        ({"cameras": {KEY: "a"}}, "images without a camera (47): '0/1', '0/2', '0/3'"),
        ({"superclasses": {"grey-0": "a"}}, "classes without a superclass (7): 'grey-1'"),
        ({"test_subsets": {"few": ("grey-9",)}}, "classes of test_subsets() that are not in classes() (1)"),
    ],
)
def test_what_a_data_set_lists_is_consistent(answers: dict[str, Any], sentence: str) -> None:
    odd = Odd(answers=answers)
    (found,) = sentences_of(lambda: split_dataset(odd, odd.classes(), ratio=0.9, seed=0))
    assert found.removeprefix("The data set lists ").startswith(sentence)


def sentence_on(code: str, module: str, content: dict[str, Any], folder: Path) -> str:
    """Return the only mistake of a search file that names parts of ``module``, whose ``code`` is written here."""
    Path(folder, f"{module}.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        (found,) = sentences_of(lambda: read_plan(content, folder / "runs"))
    return found


@pytest.mark.parametrize("method", [*METHODS, "features", "identity", "published_split", "left_out", "stamp"])
def test_what_a_method_raises_is_a_sentence(method: str, search_file: Any, tmp_path: Path) -> None:
    module, error = f"raising_{method}", "SystemExit(3)" if method.startswith("c") else "KeyError('x')"
    code = (
        "from support.own_parts import Greys\n"
        f"class Raising(Greys):\n    def {method}(self, *_):\n        raise {error}\n"
    )
    content = search_file(dataset={"name": f"{module}:Raising"}, training={"batch_size": 4, "images_per_class": 2})
    found = sentence_on(code, module, content, tmp_path)
    assert re.match(f"dataset.name: {module}:Raising raises \\w+: .*x?.*; fix its code.", found)


@pytest.mark.parametrize(
    ("key", "body"), [("validation", "return None"), ("test", "raise SystemExit(3)"), ("test", "return labels")]
)
def test_a_metric_is_tried_before_the_test(key: str, body: str, search_file: Any, tmp_path: Path) -> None:
    module = f"metric_{key}_{len(body)}"
    content = search_file(metrics={key: ["map_at_r", f"{module}:mine"]})
    found = sentence_on(f"def mine(embeddings, labels):\n    {body}\n", module, content, tmp_path)
    assert re.match(f"The metric {module}:mine must return a number; it (raises|returned) ", found)


NETWORKS = {
    "pools itself": "def forward(self, x): return self.c(x).mean((2, 3))",
    "returns two": "def forward(self, x): return self.c(x), None",
    "keeps no tensor": "def get_extra_state(self): return {'version': 1}",
    "grows": "def forward(self, x): self.n = torch.cat([self.n, x.new_zeros(1)]); return self.c(x)",
    "wants more": "def __init__(self, depth): super().__init__()",
    "leaves": "def forward(self, x): raise SystemExit(3)",
}


@pytest.mark.parametrize("way", NETWORKS)
def test_a_network_that_cannot_be_used_is_a_sentence(way: str, search_file: Any, tmp_path: Path) -> None:
    module = f"network_{way.replace(' ', '_')}"
    code = (
        "import torch\n\nclass Base(torch.nn.Module):\n    features, mean, scale = 8, (0.5,) * 3, (0.5,) * 3\n"
        "    def __init__(self):\n        super().__init__()\n        self.c = torch.nn.Conv2d(3, 8, 3, stride=2)\n"
        "        self.register_buffer('n', torch.zeros(0))\n    def forward(self, x): return self.c(x)\n\n"
        f"class Mine(Base):\n    {NETWORKS[way]}\n"
    )
    content = search_file(model={"backbone": f"{module}:Mine", "embedding_dim": 8})
    found = sentence_on(code, module, content, tmp_path)
    assert found.startswith(f"model.backbone: {module}:Mine must turn images into maps [B, features, h, w], and ")
