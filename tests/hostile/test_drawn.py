"""Drawn attacks do no harm; `holdout verify` finds drawn mutations of a finished search, or no number changes.

`make attack` draws more, with other seeds.
"""

import itertools
import os
import random
import shutil
from pathlib import Path

import pytest
from support.commands import holdout_here
from support.mutations import drawn_files, mutate
from support.refusals import within
from support.serving import asked

from hostile.inputs import attack, with_runs
from hostile.world import LOSSES, World
from search.show.live import live_app

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
    (name,) = itertools.islice(drawn_files(world.origin / "runs", LOSSES, draw), *place)
    mutation = mutate(here / "runs" / name, draw)
    done = holdout_here("verify", "small", "--runs", "runs", code=(0, 1, 2))
    assert done.returncode or numbers() == expected, (name, mutation)
