"""A sample of every kind of hostile file in every place where a command reads one."""

import gc
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.refusals import refused

from hostile.inputs import KINDS, PLACES, Place, arguments, put
from hostile.world import World

RECORDS = [place for place in PLACES if Path(place.file).parent.name == "small"]
DEEP, PIPE, PRIVATE = "100,000 lists in one another", "a pipe", "a link to a private file"
ALWAYS = [(record, DEEP) for record in RECORDS if DEEP in record.kinds]
ALWAYS += [(place, PIPE) for place in PLACES if PIPE in place.kinds]  # reading one without a writer never ends
PICKLED = ("a pickle", "torch.save", "legacy torch.save", "arrays of objects")
ALWAYS += [(place, PRIVATE) for place in PLACES if PRIVATE in place.kinds and place not in RECORDS]
ALWAYS += [  # loading one may run any code
    (place, kind)
    for place in PLACES
    if place.file.endswith((".safetensors", ".faiss", ".npz", ".pth", "model.json", "paths.json", "index.json"))
    for kind in PICKLED
    if kind in place.kinds
]
DRAWN = [
    (place, kind)
    for place in PLACES
    for kind in random.Random(place.file).sample(place.kinds, min(2, len(place.kinds)))
    if (place, kind) not in ALWAYS
] + ALWAYS


@pytest.fixture(scope="module")
def copy(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "here"
    shutil.copytree(world.origin, folder)
    return folder


@pytest.fixture
def refuse(
    copy: Path, here: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Place, str, Sequence[str]], None]:
    """Return a function that puts something else in a place, checks what its command says, and puts the file back."""
    monkeypatch.chdir(copy)

    def refuse(place: Place, kind: str, sentences: Sequence[str]) -> None:
        path = copy / place.file
        before = path.read_bytes()
        put(KINDS[kind], path, world)
        try:
            gc.collect()  # else a destructor that runs in the depth of a nested file fails there
            said = refused(copy, arguments(place), *sentences)
        finally:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
            path.write_bytes(before)
        assert not world.canary.exists()
        assert world.secret_word not in said

    return refuse


@pytest.mark.parametrize(("place", "kind"), DRAWN, ids=[f"{place.file}: {kind}" for place, kind in DRAWN])
def test_it_is_one_sentence_and_nothing_is_written(place: Place, kind: str, refuse: Callable[..., None]) -> None:
    refuse(place, kind, place.says or (Path(place.file).name,))


@pytest.mark.parametrize(
    "place", [place for place in PLACES if Path(place.file).parent.name == "small"], ids=lambda place: place.file
)
def test_a_record_that_is_a_link_is_not_followed(place: Place, refuse: Callable[..., None]) -> None:
    refuse(place, "a link to a private file", (f"{Path(place.file).name} is a link, which is not followed",))
