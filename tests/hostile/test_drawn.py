"""Drawn attacks do no harm, `holdout verify` finds drawn mutations of a finished search, or no number changes, and odd
input means what plain input does.

`make attack` draws more, with other seeds.
"""

import itertools
import os
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import holdout_here, json_of, plain
from support.image_stores import build_store
from support.kinds import feature_file
from support.mutations import drawn_files, mutate
from support.odd_input import IMAGES, IMPORTS, LAUNCHERS, NAMES, NO_NUMBERS, REAL, RETURNED, WHOLE, WIDTHS
from support.refusals import contents, sentences_of, within
from support.serving import asked
from support.small_search import GLYPHS

import holdout
from hostile.inputs import attack, with_runs
from hostile.world import LOSSES, World
from search.config.search_config import parse_config
from search.config.yaml_file import with_value
from search.driver.make_plan import make_plan
from search.driver.start import enqueue
from search.records.writable import open_search
from search.show.live import live_app
from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.view import Store

SEED, ATTACKS = os.environ.get("SEED", "0"), int(os.environ.get("ATTACKS", "8"))


def said_by(words: str) -> str:
    """Return the output of a command, or a page; one that ends with another exit code fails."""
    if words.startswith("/"):
        status, _, body = asked(live_app(Path("runs")), words, "", (b"host", b"localhost"))
        return f"{status} {body}" if status < 500 else f"Traceback (most recent call last): {status}"
    done = holdout_here(*with_runs(words), code=(0, 1, 2))
    return done.stdout + done.stderr


@pytest.mark.parametrize("number", range(ATTACKS))
def test_an_attack_does_no_harm(number: int, world: World, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTACK_SECRET", world.variable)
    monkeypatch.syspath_prepend(world.folder / "modules")
    name, words, prepare = attack(world, random.Random(f"{SEED} {number}"))
    prepare(here)
    with within(120):
        said = said_by(words)
    assert not world.harm(said), name
    written = [path for path in here.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in written if world.variable.encode() in path.read_bytes()], name


def numbers() -> list[str]:
    """Return the tables of the search here; `verify` too tolerates differences in digits that they omit."""
    return [said_by(words) for words in ("compare small", *(f"trials small {loss}" for loss in LOSSES))]


@pytest.mark.parametrize("number", range(ATTACKS // 2))
def test_a_mutation_is_found_or_changes_no_number(number: int, world: World, here: Path) -> None:
    draw = random.Random(f"{SEED} {number}")
    shutil.copytree(world.origin / "runs", here / "runs")
    expected = numbers()
    place = (7 * number, 7 * number + 1)  # another kind of file each
    ((_, name),) = itertools.islice(drawn_files(world.origin / "runs", LOSSES, draw), *place)
    mutation = mutate(here / "runs" / name, draw)
    done = holdout_here("verify", "small", "--runs", "runs", code=(0, 1, 2))
    assert done.returncode or numbers() == expected, (name, mutation)


# Odd input, which means what plain input does, or is refused in a sentence and leaves nothing behind.

LAB = """\
import holdout

def metric(embeddings, labels):
    return {metric}

@holdout.trainable(lr=holdout.Float(0.001, 0.1, default=0.01))
def train(params, train, report):
    names = ("SLURM_NTASKS", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "LOCAL_WORLD_SIZE")
    assert not any(name in os.environ for name in names), "it is one of several processes"
    report(lambda items: items, found={found})
"""
"""A user's code that reports a number, returns one, and trains in one process alone."""
SEARCH = """\
name: odd
trainable: {module}:train
dataset: {{name: features, file: mine.npz}}
training: {{epochs: 1}}
search: {{trials: 2, pruner: none, objective: '{module}:metric'}}
stages: [search]
resources: {{engine: {engine}}}
"""


def evaluated(expression: str) -> Any:
    exec(IMPORTS, names := {})
    return eval(expression, names)


def run_anywhere(draw: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Run a search in a folder of any name, from any launcher and terminal, whose code gives numbers of any library."""
    for name, value in LAUNCHERS[draw.choice(sorted(LAUNCHERS))].items():
        patch.setenv(name, value)
    for name, values in {"COLUMNS": WIDTHS, "LINES": WIDTHS, "TERM": ("", "dumb", "xterm-256color", "a b")}.items():
        patch.setenv(name, draw.choice(values))
    module, wrong = f"lab_{draw.getrandbits(64)}", draw.choice(("", "", "metric", "found"))
    forms = {key: draw.choice(NO_NUMBERS if key == wrong else REAL) for key in ("metric", "found")}
    gives = {"metric": forms["metric"].replace("{}", "0.25"), "found": forms["found"].replace("{}", "0.75")}
    folder = Path(f"{draw.choice(NAMES)}{draw.choice(NAMES)}")
    folder.mkdir()
    patch.chdir(folder)
    feature_file(Path())
    Path(f"{module}.py").write_text(IMPORTS + LAB.format(**gives))
    Path("row.yaml").write_text(SEARCH.format(module=module, engine=draw.choice(("in_process", "in_process", "local"))))
    done = holdout_here("run", "row.yaml", "--runs", "runs", code={"metric": 2, "found": 1}.get(wrong, 0))
    if wrong:
        said = f"{module}:metric must return a number" if wrong == "metric" else "must return numbers; found is "
        assert said in plain(done.stderr), gives
        assert Path("runs").exists() == (wrong == "found")
        return
    (trials,) = json_of("trials", "odd", "--runs", "runs").values()
    assert [trial["value"] for trial in trials] == [0.25, 0.25]
    assert [*holdout.open("odd", runs="runs").history("train", 0)["found"]] == [0.75], gives


KEYS = (
    ("split.seed", WHOLE, "scale", 16), ("search.trials", WHOLE, "scale", 16), ("training.lr", REAL, "margin", 0.5),
)  # fmt: skip
"""A key, expressions of a number that it takes, a hyperparameter that takes it too, and the number."""


def number_of_a_library(draw: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Give a number of any library for a key of a search from Python, and in a proposal."""
    key, forms, parameter, number = draw.choice(KEYS)
    expression = draw.choice((draw.choice(forms), draw.choice(NO_NUMBERS))).replace("{}", str(number))
    content = {"name": "row", "losses": ["proxy_anchor"], "dataset": GLYPHS["dataset"], "training": {"batch_size": 20}}
    content["resources"] = {"engine": "in_process"}
    given = with_value(content, key.split("."), evaluated(expression))
    with closing(open_search(make_plan(parse_config(content), Path("runs")))):
        pass
    propose = partial(enqueue, "row", Path("runs"), "proxy_anchor", [{parameter: evaluated(expression)}])
    if expression in NO_NUMBERS:
        before = contents(Path("runs"))
        assert sentences_of(lambda: parse_config(given))[0].startswith(f"{key}: must be ")
        assert parameter in sentences_of(propose)[0]
        assert contents(Path("runs")) == before
    else:
        assert parse_config(given) == parse_config(with_value(content, key.split("."), number))
        assert propose()["trials"] == [{"number": 1, "params": {parameter: number}}]


def pixels_of_read(draw: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Return anything from the ``read`` of a data set."""
    image = np.random.default_rng(draw.getrandbits(32)).integers(0, 256, (9, 7, 3), dtype=np.uint8)

    class Mine(Glyphs):
        given: object = None

        def read(self, key: str) -> np.ndarray:
            return self.given  # type: ignore[return-value]

    names, window = list(Mine().classes())[:2], torch.tensor([[0, 0, 9, 7]])
    due = "Mine.read must return uint8, height × width × 3 (RGB), as of np.asarray(image.convert('RGB'));"
    build = partial(build_store, Mine(), names, short_side=64)
    for returned, form in RETURNED.items():
        Mine.given = form(image)
        assert sentences_of(partial(build, cache=Path("wrong"))) == (f"{due} it returned {returned}.",)
    assert {path.suffix for path in Path("wrong").iterdir()} <= {".lock", ".used"}
    for number, form in enumerate(IMAGES):
        Mine.given = form(image)
        found = Store(build(cache=Path(str(number)))).gather(torch.tensor([0]), window)
        assert np.array_equal(found[0].permute(1, 0, 2).numpy(), Mine.given)


PARTS = """\
import holdout, json, torch

class Train(holdout.Trainable):
    space = {{"lr": holdout.Float(0.01, 1.0, default=0.1)}}

    def setup(self, params, train, *, seed, device):
        self.items = torch.tensor(train.items)
        self.scale, self.centre, self.turn = 1.0, 0.0, 0
        self.generator = torch.Generator().manual_seed(seed)

    def train_epoch(self):
        self.scale, self.turn = 1.0 + torch.rand(1, generator=self.generator).item(), 1
        self.centre = self.items.mean().item() + 2.0

    def embed(self, items):
        x = torch.tensor(items)
        return {embeds}

    def save(self, folder):
        (folder / "parts.json").write_text(json.dumps({{name: getattr(self, name) for name in {saved}}}))

    def load(self, folder):
        for name, value in json.loads((folder / "parts.json").read_text()).items():
            setattr(self, name, value)
"""
"""A training whose embeddings use some of its parts, of which it saves some."""
USES = {"x.relu() * self.scale + x": {"scale"}, "x - self.centre": {"centre"}, "x.roll(self.turn, 1)[:, :7]": {"turn"},
        "torch.cat((x, (x - self.centre) * self.scale), 1)": {"centre", "scale"}, "x": set()}  # fmt: skip
MIXES = ("{}", "{}", "{}", "({0} - ({0}).mean(0))", "torch.nn.functional.dropout({})", "({0} + ({0}).roll(1, 0))")
"""The items of a batch by themselves, or mixed, or another time otherwise."""


def saved_model_of_parts(draw: random.Random, patch: pytest.MonkeyPatch) -> None:
    """Train with any parts: what is not saved, or mixes items, is found in the first trial, and none follows."""
    module, (embeds, used) = f"parts_{draw.getrandbits(64)}", draw.choice(sorted(USES.items()))
    saved = {name for name in ("scale", "centre", "turn") if draw.random() < 0.7}
    mix = draw.choice(MIXES)
    Path(f"{module}.py").write_text(PARTS.format(embeds=mix.format(embeds), saved=sorted(saved)))
    patch.syspath_prepend(Path().absolute())
    feature_file(Path())
    content = SEARCH.format(module=module, engine="in_process").replace(":train", ":Train").replace("1}", "2}")
    Path("row.yaml").write_text(content.replace(f"'{module}:metric'", "map_at_r"))
    is_kept = used <= saved and mix == "{}"
    done = holdout_here("run", "row.yaml", "--runs", "runs", code=0 if is_kept else 1)
    (trials,) = json_of("trials", "odd", "--runs", "runs").values()
    assert len(trials) == (2 if is_kept else 1), (embeds, saved, mix)
    assert ("can be tested" in plain(done.stderr)) != is_kept


CHECKS: tuple[Callable[[random.Random, pytest.MonkeyPatch], None], ...] = (
    pixels_of_read,
    saved_model_of_parts,
    run_anywhere,
    number_of_a_library,
)


@pytest.mark.parametrize("number", range(ATTACKS // 2))
def test_odd_input_means_what_plain_input_does_or_is_refused(
    number: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = CHECKS[number % len(CHECKS)]
    with within(120):
        check(random.Random(f"{SEED} {number}"), monkeypatch)
