"""User-defined parts in a search file: syntax, names, errors, shipping to a cluster; values that Python code gives."""

import array
import datetime
import decimal
import enum
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
import yaml
from hypothesis import given, strategies as st
from support.refusals import sentences_of
from support.small_search import SearchFile

import holdout
from holdout.cli.submission import PACKAGES, SUBMITTED, submission, working_directory
from search.config.search_config import parse_config
from search.config.validation import plain
from search.driver.make_plan import read_plan
from search.records.plan import training_of
from search.records.writable import open_search
from search.stages import Stage
from trainables.common.errors import InvalidInput
from trainables.losses import LossRow

PARTS = """
import numpy as np
from dataclasses import dataclass
from optuna.distributions import FloatDistribution
from spaces.space import Float
from support.own_parts import Greys
from trainables.data.batch_samplers import RandomSampler
from trainables.data.dataset import Dataset
from trainables.losses.pairs import Contrastive

class CircleLoss(Contrastive):
    space = {"margin": Float(0, 1, default=0.25, source="chosen")}

class MPA(CircleLoss):
    pass

class Spaceless(Contrastive):
    pass

def map(embeddings, labels):
    return 0.5

class Odd(RandomSampler):
    @classmethod
    def problems(cls, class_sizes, batch_size, images_per_class):
        return ["An odd batch is needed: give 21."] if batch_size % 2 == 0 else []

@dataclass(frozen=True, kw_only=True)
class Dots(Greys):
    shades: int = 16
    def __post_init__(self):
        if self.shades == 13:
            raise RuntimeError("thirteen")
    def read(self, key):
        return np.zeros((20, 20, 3), dtype=np.uint8)

class Undecorated(Dataset):
    classes = identity = stamp = read = lambda self, *key: ""
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("own")
    package = folder / "holdout_test_lab"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(PARTS)
    (package / "broken.py").write_text("raise RuntimeError('half written')")
    (package / "needy.py").write_text("import not_installed_anywhere")
    (folder / "holdout_test_file.py").write_text(PARTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield package.name


def test_own_losses_stand_beside_the_built_in_ones(search_file: SearchFile, lab: str, tmp_path: Path) -> None:
    own = f"{lab}.parts:CircleLoss"
    losses = ["pnp", own, {"name": "circle", "part": own}]
    content = search_file(losses=losses, space={"circle_loss": {"margin": 0.5}, "circle": {"margin": [0.1, 0.2]}})
    plan = read_plan(content, tmp_path / "runs")
    assert plan.config.loss_names == ("pnp", "circle_loss", "circle")
    assert plan.spaces["circle_loss"].default == {"margin": 0.5}
    assert plan.spaces["circle"].default == {"margin": 0.2}
    stored = yaml.safe_load(plan.config.to_yaml())
    assert stored["losses"] == ["pnp", {"name": "circle_loss", "part": own}, {"name": "circle", "part": own}]
    assert parse_config(stored) == plan.config
    search = open_search(plan)
    for name, key in (("pnp", "pnp"), ("circle", own)):
        study = search.study(name, Stage.SEARCH)
        trial = study.ask(lambda number: number)
        assert training_of(plan, name, Stage.SEARCH, trial).loss == key
    assert read_plan(content, tmp_path / "runs").config == plan.config


WRONG: list[tuple[str, Any, str]] = [
    ("losses", ["LAB.parts:Circle"], "The loss 'LAB.parts:Circle' does not exist: LAB.parts has no Circle"),
    ("losses", ["LAB.broken:CircleLoss"], "LAB.broken raises RuntimeError: half written"),
    ("losses", ["LAB.needy:CircleLoss"], "needs the module not_installed_anywhere"),
    ("losses", ["LAB.parts:Spaceless"], "must declare its search space in a class attribute space"),
    ("losses", ["LAB.parts:MPA"], "losses: LAB.parts:MPA would be called mpa, which is the name of a built-in loss"),
    ("losses", [{"name": "training", "part": "LAB.parts:CircleLoss"}], "which is the name of a section of space"),
    ("metrics", {"validation": ["map", "LAB.parts:map"]}, "has the name of 'map'"),
    ("training", {"sampler": "LAB.parts:Odd", "batch_size": 20}, "training: An odd batch is needed: give 21."),
    ("dataset", {"name": "LAB.parts:Undecorated"}, "must be a dataclass"),
    ("dataset", {"name": "LAB.parts:Dots", "shades": 13}, "raises RuntimeError: thirteen"),
    ("ship", ["trainables"], "ship: trainables is one of Holdout's packages"),
    ("ship", ["LAB.parts"], "ship: LAB.parts is a part of the package LAB; ship that"),
]


@pytest.mark.parametrize(("key", "value", "said"), WRONG, ids=[f"{key} {value}"[:60] for key, value, _ in WRONG])
def test_a_wrong_part_is_one_sentence_beside_the_other_mistakes(
    search_file: SearchFile, lab: str, key: str, value: Any, said: str, tmp_path: Path
) -> None:
    content = search_file(resources={"cpus_per_trial": 9999})
    content[key] = yaml.safe_load(yaml.safe_dump(value, width=1000).replace("LAB", lab))
    found = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
    assert len(found) == 2, found
    assert sum(said.replace("LAB", lab) in sentence for sentence in found) == 1, found


def test_what_is_shipped_travels_with_a_submitted_search(search_file: SearchFile, lab: str, tmp_path: Path) -> None:
    content = search_file(
        dataset={"name": f"{lab}.parts:Dots", "root": "/on/the/cluster"},
        losses=[f"{lab}.parts:CircleLoss"],
        ship=[lab, "holdout_test_file"],
    )
    submitted = submission(content)
    assert yaml.safe_load(submitted.text) == content
    with working_directory(submitted.text, submitted.shipped) as directory:
        names = {path.name for path in directory.iterdir()}
        assert names == {*PACKAGES, lab, "holdout_test_file.py", SUBMITTED}
        assert (directory / lab / "parts.py").read_text() == PARTS
        assert not list(directory.rglob("__pycache__"))


def test_all_mistakes_of_a_submitted_search_come_at_once(search_file: SearchFile, lab: str) -> None:
    dataset = {"name": "cub200", "root": "relative"}
    content = search_file(dataset=dataset, losses=[f"{lab}.parts:Circle"], ship=["not_installed_anywhere"])
    found = sentences_of(lambda: submission(content))
    for part in ("dataset.root must be", "has no Circle", "ship: the package", f"add `ship: [{lab}]` to the file"):
        assert sum(part in sentence for sentence in found) == 1, (part, found)
    assert len(found) == 4, found


@pytest.mark.parametrize("name", ["untrained", "mpa", "<img>"])
def test_a_training_whose_name_is_not_accepted_is_refused_in_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named.py").write_text(
        f"import holdout\n@holdout.trainable()\ndef train(params, train, report): pass\ntrain.name = {name!r}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "named", raising=False)
    content = {"name": "x", "dataset": {"name": "glyphs"}, "trainable": "named:train"}
    (said,) = sentences_of(lambda: parse_config(content))
    assert said.startswith("losses: named:train would be called ")
    found = parse_config({**content, "losses": [{"name": "fine", "part": "named:train"}]})
    assert found.loss_names == ("fine",)


# Values that Python code gives in place of YAML's: they mean the same, or are refused by name.


class Colour(enum.Enum):
    RED = "red"


NUMBERS = (np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64)


@given(st.integers(0, 100), st.sampled_from(NUMBERS), st.sampled_from((1, 4, 10)))
def test_numbers_of_libraries_keep_their_value(number: int, kind: Any, parts: int) -> None:
    value = number / parts if issubclass(kind, np.floating) else number
    array = np.asarray([value], dtype=kind)
    for given_, expected in ((array[0], value), (array, [value]), (torch.tensor(array)[0], value)):
        found = plain(given_)
        assert found == expected
        assert type(found) in (int, float, list)
    assert holdout.Choice([array[0]], default=torch.tensor(array)[0]) == holdout.Choice([value], default=value)
    low, high = kind(number), kind(number) + kind(10)
    ranged = holdout.Float(low, high, default=torch.tensor(high))
    assert ranged == holdout.Float(plain(low), plain(high), default=plain(high))
    assert {type(entry) for entry in (ranged.default, *ranged.ends)} <= {int, float}


SAME = [
    (np.bool_(True), True), (np.str_("a"), "a"), (Path("a/b"), "a/b"), (Colour.RED, "red"), (range(3), [0, 1, 2]),
    ((1, 2), [1, 2]), ({np.int64(1): np.float32(0.3)}, {"1": 0.3}), (np.array([["a"], ["b"]]), [["a"], ["b"]]),
    (torch.tensor([0.1, 0.2]), [0.1, 0.2]), (None, None), (torch.tensor(3), 3),
    (torch.tensor(0.1, requires_grad=True), 0.1), (torch.tensor(0.5).bfloat16(), 0.5), (np.longdouble(0.5), 0.5),
    (np.array(7), 7), (array.array("d", [0.5]), [0.5]), (LossRow, "trainables.losses:LossRow"),
    (plain, "search.config.validation:plain"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), SAME, ids=lambda value: type(value).__name__)
def test_a_value_keeps_its_meaning(value: Any, expected: Any) -> None:
    found = plain({"a": {"b": [value]}})["a"]["b"][0]
    assert found == expected
    assert type(found) is type(expected)


REFUSED = [
    datetime.datetime(2026, 1, 1), np.datetime64("2026-01-01"), np.datetime64(1, "ns"), np.timedelta64(1, "ns"),
    np.array(None), np.void(b"a"), np.bytes_(b"a"), decimal.Decimal(1), {1, 2}, 1j, object(), print, np.complex64(1),
    holdout.Float(0, 1), np.ma.masked, pandas.NA, torch.tensor(1.0, device="meta"), torch.int8,
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_has_no_such_meaning_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^split\.seed: must be text, a number, true, false, .*; convert it\.$"):
        parse_config({"name": "x", "dataset": {"name": "glyphs"}, "losses": ["pnp"], "split": {"seed": value}})


@pytest.mark.parametrize("value", ["a\udcff", ["a", {"b\ud800": 1}], {"b": ("a\udcff",)}], ids=ascii)
def test_text_that_is_no_utf8_is_refused_anywhere(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^losses\S*: '\S*\\ud\S+' is no text in UTF-8; rename what has this name"):
        plain({"losses": value})


def test_a_value_that_contains_itself_is_refused() -> None:
    content: dict[str, Any] = {"losses": []}
    content["losses"].append(content)
    with pytest.raises(InvalidInput, match=r"^losses: nested more than 100 levels deep, or contains itself"):
        plain(content)


def test_a_part_of_a_notebook_cannot_be_imported_elsewhere() -> None:
    cell = type("Cell", (), {"__module__": "__main__"})
    for named in (cell, "__main__:Cell"):
        with pytest.raises(InvalidInput, match=r"^losses: '__main__:Cell' is in the script or notebook.* %%writefile"):
            plain({"losses": ["pnp", named]})
