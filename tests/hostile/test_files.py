"""A sample of every kind of hostile file in every place where a command reads one."""

import gc
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.refusals import refused

from hostile.inputs import KINDS, PLACES, Place, put, with_runs
from hostile.world import World

DEEP, PRIVATE = "100,000 lists in one another", "a link to a private file"
PICKLES = {
    ".pth": ("a pickle", "torch.save", "legacy torch.save"), ".safetensors": ("torch.save",), ".faiss": ("a pickle",),
    ".npz": ("a pickle", "arrays of objects"),
}  # fmt: skip
"""Files whose loading may run any code."""


def is_record(place: Place) -> bool:
    return Path(place.file).parent.name == "small"


def sample(place: Place) -> Iterator[str]:
    """Yield the kinds that are dangerous in a place, and another."""
    yield "a pipe"  # reading one without a writer never ends
    yield PRIVATE
    yield from PICKLES.get(Path(place.file).suffix, ())
    if is_record(place):
        yield DEEP
    yield random.Random(place.file).choice(place.kinds)


SAMPLE = [(place, kind) for place in PLACES for kind in dict.fromkeys(sample(place)) if kind in place.kinds]


@pytest.fixture(scope="module")
def copy(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "here"
    shutil.copytree(world.origin, folder)
    return folder


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("place", "kind"), SAMPLE, ids=[f"{place.file}: {kind}" for place, kind in SAMPLE])
def test_it_is_one_sentence_and_nothing_is_written(
    place: Place, kind: str, copy: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    path = copy / place.file
    before, sentences = path.read_bytes(), place.says or (path.name,)
    if is_record(place) and kind == PRIVATE:
        sentences = (f"{path.name} is a link, which is not followed",)
    put(KINDS[kind], path, world)
    try:
        gc.collect()  # else a destructor that runs in the depth of a nested file fails there
        said = refused(copy, with_runs(place.command.replace("FILE", place.file)), *sentences)
    finally:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        path.write_bytes(before)
    assert not world.canary.exists()
    assert world.secret_word not in said
