"""What a user's data set lists or raises, or a metric, is refused in sentences before anything is trained."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from support.own_parts import Greys
from support.refusals import sentences_of

from search.plan.make_plan import read_plan
from trainables.data.split import split_dataset

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

Change = Callable[[str, tuple[str, ...]], tuple[Any, Any]]
CLASSES: list[tuple[Change, str]] = [
    (lambda name, keys: (int(name[-1]), keys), "The data set lists names that are no text in UTF-8 (8): 0, 1, 2"),
    (
        lambda name, keys: (name, tuple(map(Path, keys))),
        "The data set lists names that are no text in UTF-8 (48): PosixPath('0/0')",
    ),
    (
        lambda name, keys: (f"{name}\udc80", keys),
        r"The data set lists names that are no text in UTF-8 (8): 'grey-0\udc80'",
    ),
    (
        lambda name, keys: (name, (*keys, keys[0])),
        "The data set lists images that are listed twice (8): '0/0', '1/0', '2/0'",
    ),
    (lambda name, keys: (name, (*keys, KEY)), "The data set lists images that are listed twice (1): '0/0'"),
    (lambda name, keys: (name, set(keys)), "8 classes whose images are in no tuple or list: grey-0 (set)"),
]


@pytest.mark.parametrize(("change", "sentence"), CLASSES)
def test_classes_have_names_and_each_image_once(change: Change, sentence: str) -> None:
    refuses({"classes": dict(change(name, keys) for name, keys in LISTED.items())}, sentence)


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"groups": {"none": "a"}}, "The data set lists images of groups() that are not in classes() (1): 'none'"),
        ({"parts": {KEY: "Query"}}, "The data set lists parts that are neither query nor gallery (1): 'Query'"),
        ({"parts": {7: "query"}}, "The data set lists images of parts() that are not in classes() (1): 7"),
        ({"cameras": {KEY: "a"}}, "The data set lists images without a camera (47): '0/1', '0/2', '0/3'"),
        ({"superclasses": {"grey-0": "a"}}, "The data set lists classes without a superclass (7): 'grey-1'"),
        (
            {"test_subsets": {"few": ("grey-9",)}},
            "The data set lists classes of test_subsets() that are not in classes() (1)",
        ),
    ],
)
def test_marks_are_of_the_listed_images(answers: dict[str, Any], sentence: str) -> None:
    refuses(answers, sentence)


def refuses(answers: dict[str, Any], sentence: str) -> None:
    odd = Odd(answers=answers)
    (found,) = sentences_of(lambda: split_dataset(odd, odd.classes(), ratio=0.9, seed=0))
    assert found.startswith(sentence)


@pytest.mark.parametrize("method", [*METHODS, "features", "identity", "published_split", "left_out", "stamp"])
@pytest.mark.parametrize("error", ["KeyError('x')", "SystemExit(3)"])
def test_what_a_method_raises_is_a_sentence(method: str, error: str, search_file: Any, tmp_path: Path) -> None:
    module = f"raising_{method}_{error[:3]}"
    Path(tmp_path, f"{module}.py").write_text(
        "from support.own_parts import Greys\n"
        f"class Raising(Greys):\n    def {method}(self, *_):\n        raise {error}\n"
    )
    content = search_file(dataset={"name": f"{module}:Raising"}, training={"batch_size": 4, "images_per_class": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        (found,) = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
    assert re.match(f"dataset.name: {module}:Raising raises \\w+: .*x?.*; fix its code.", found)


@pytest.mark.parametrize("key", ["validation", "test"])
@pytest.mark.parametrize("body", ["return None", "raise SystemExit(3)", "return labels"])
def test_a_metric_is_tried_before_the_test(key: str, body: str, search_file: Any, tmp_path: Path) -> None:
    module = f"metric_{key}_{len(body)}"
    Path(tmp_path, f"{module}.py").write_text(f"def mine(embeddings, labels):\n    {body}\n")
    content = search_file(metrics={key: ["map_at_r", f"{module}:mine"]})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        (found,) = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
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
    Path(tmp_path, f"{module}.py").write_text(
        "import torch\n\nclass Base(torch.nn.Module):\n    features, mean, scale = 8, (0.5,) * 3, (0.5,) * 3\n"
        "    def __init__(self):\n        super().__init__()\n        self.c = torch.nn.Conv2d(3, 8, 3, stride=2)\n"
        "        self.register_buffer('n', torch.zeros(0))\n    def forward(self, x): return self.c(x)\n\n"
        f"class Mine(Base):\n    {NETWORKS[way]}\n"
    )
    content = search_file(model={"backbone": f"{module}:Mine", "embedding_dim": 8})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        (found,) = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
    assert found.startswith(f"model.backbone: {module}:Mine must turn images into maps [B, features, h, w], and ")
