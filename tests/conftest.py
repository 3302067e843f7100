"""What several test files need: small data sets and searches that take moments."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.refusals import NOWHERE
from support.services import TOKEN, Nodes, ray_nodes
from support.small_disk import SmallDisk, small_disk

from search.config.search_config import parse_config
from search.plan.make_plan import make_plan
from search.plan.search import OpenedSearch, open_search

SECRET = "not-for-every-eye"
os.environ.pop("COLUMNS", None)  # xdist's, of the terminal that the tests were started from
os.environ["RAY_AUTH_MODE"] = "token"  # Ray reads it when it is imported, by whichever test comes first


def shares_cluster(file: Path) -> bool:
    """Whether a module's tests use the fixtures ``nodes`` or ``on_nodes``."""
    return "nodes: Nodes" in (text := file.read_text()) or "on_nodes" in text


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The modules that share the cluster come first: what takes longest does not begin last."""
    sharing = {path for path in {item.path for item in items} if shares_cluster(path)}
    items.sort(key=lambda item: item.path not in sharing)


def pytest_collection_finish() -> None:
    """What was imported stays: looking through it for garbage, again and again, would be a sixth of the tests' time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end everything may go: libraries count what is left of them."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side, a module's tests stay in one process, and all that share the cluster in the same one.

    One cluster is started then, and not one a process.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "cluster" if shares_cluster(config.rootpath / file) else file

    return ByModule(config, log)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decoded images go to a folder of the test session, not to the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    os.environ["XDG_STATE_HOME"] = str(folder)  # until a module has its own
    return folder


@pytest.fixture(scope="module", autouse=True)
def state_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The ledger in the user's state folder is each module's own, and never the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of one test: nothing that another one opened counts."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def token(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every Ray of the tests has this token, also one that a command starts in this process, which reads it once."""
    file = tmp_path_factory.mktemp("auth") / "auth_token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(file)


def draw_folder(root: Path, classes: int = 16, images: int = 10, size: int = 20) -> Path:
    """A folder data set of coloured noise: each class has its own mean colour, so that a model can learn it."""
    generator = np.random.default_rng(0)
    for number in range(classes):
        folder = root / f"class-{number:02d}"
        folder.mkdir(parents=True)
        colour = generator.integers(0, 256, 3)
        for image in range(images):
            pixels = np.clip(colour + generator.normal(0, 40, (size, size, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{image:02d}.png")
    return root


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A cluster of two nodes that tests share: to start one takes as long as most of them.

    The nodes' environment holds a secret, and the programs of the second one complain.
    """
    token = tmp_path_factory.mktemp("token") / "auth_token"
    with ray_nodes(token, SECRET_WORD=SECRET) as nodes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMP_DISPLAY_ENV", "TRUE")  # OpenMP's runtime says on standard error what it is set to
            nodes.add(cpus=1)
        yield nodes


@pytest.fixture(scope="module")
def on_nodes(nodes: Nodes) -> Iterator[None]:
    """A module's searches run there, and not each on a Ray of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.gcs_address)
        yield


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen classes of ten small images; not to be changed."""
    return draw_folder(tmp_path_factory.mktemp("images"))


def small_search(root: Path, **changes: Any) -> dict[str, Any]:
    """A search file that trains in moments: 8 classes train and validate (6 and 2), 8 are held out."""
    return {
        "name": "small",
        "dataset": {"name": "folder", "root": str(root)},
        "model": {"embedding_dim": 8},
        "training": {"epochs": 3, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        "losses": ["proxy_anchor", "pnp"],
        "search": {"trials": 3},
        "selection": {"finalists": 1, "seeds": 2},
        "final": {"seeds": 2},
        **changes,
    }


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small file system that can be filled."""
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def search_file(image_folder: Path) -> Callable[..., dict[str, Any]]:
    """Makes search files on the small folder."""
    return lambda **changes: small_search(image_folder, **changes)


@pytest.fixture(scope="session")
def search_made(image_folder: Path) -> Callable[..., OpenedSearch]:
    """Opens a search in a runs folder without running it."""

    def make(runs: Path, **changes: Any) -> OpenedSearch:
        return open_search(make_plan(parse_config(small_search(image_folder, **changes)), runs))

    return make


@pytest.fixture
def opened(search_made: Callable[..., OpenedSearch], tmp_path: Path) -> Callable[..., OpenedSearch]:
    """Opens a search in a runs folder of the test's own without running it."""
    return lambda **changes: search_made(tmp_path / "runs", **changes)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that commands are given in which are to be refused, and which never reach a Ray."""
    monkeypatch.setenv("RAY_ADDRESS", NOWHERE)
    monkeypatch.chdir(tmp_path)
    return tmp_path
