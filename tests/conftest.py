"""Shared fixtures: small data sets and small searches."""

import functools
import gc
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from support.mlflow_database import copy_migrated
from support.refusals import NOWHERE
from support.services import SECRET, TOKEN, Nodes, ray_nodes
from support.small_disk import SmallDisk, small_disk
from support.small_search import draw_folder, save_resnet, small_search
from support.trees import Trees, make_tree

import holdout
from search import trust
from search.config.search_config import parse_config
from search.driver.inputs import with_training_images
from search.driver.make_plan import make_plan
from search.records.writable import WritableRecords, open_search
from trainables.common.errors import REFERRED

if TYPE_CHECKING:  # import torch, which the process that only distributes the tests does without
    from hostile.world import World
    from support.kinds import Finished, FinishedCampaign
    from support.small_model import SmallModel

    from trainables.inference.embedder import Embedder

gc.disable()  # until the tests begin: collections take seconds of their imports
os.environ.pop("COLUMNS", None)  # set by xdist from the terminal
os.environ["RAY_AUTH_MODE"] = "token"  # Ray reads it at its first import
settings.register_profile("few", max_examples=50, deadline=None)  # tests have no time limits of their own
settings.load_profile("few")


STATES = itertools.count()
LONGEST = ("driver", "engines", "tracking", "wheel")
"""Folders of tests with processes of their own or whole searches."""
SHARED = {
    "cluster": ("nodes: Nodes", "on_nodes"),
    "searches": ("kinds: Callable", "kinds: Kinds", "lot: FinishedCampaign", "onnxruntime"),
    "reports": ("tested: Path",),
    "libraries": ("lightning_module", "lightning.pytorch"),
    "world": ("world: World", "hostile.world import LOSSES"),
}
"""What takes long and is made or imported once in a process -> words in the modules that use it."""


@functools.cache
def shared_by(file: Path) -> str | None:
    """Return what a module's tests share with those of other modules, so that they run in one process."""
    text = file.read_text()
    return next((name for name, words in SHARED.items() if any(word in text for word in words)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the modules that take longest first, so that no process ends long after the other."""
    items.sort(key=lambda item: (shared_by(item.path) is None, item.path.parent.name not in LONGEST))


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Exclude everything that exists now from garbage collection, which would take a sixth of the tests' time.

    Trainings collect when they end, and imported libraries and finished modules make that take a second.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Undo the freeze: libraries report leaks at exit."""
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a module's tests in one process, and all that share something in the same one, which makes it."""
    from xdist.scheduler import LoadScopeScheduling

    class ByModule(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return shared_by(config.rootpath / file) or file

    return ByModule(config, log)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Use a cache folder of the test session for decoded images instead of the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    os.environ["XDG_STATE_HOME"] = str(folder)  # until a module sets its own
    return folder


@pytest.fixture(scope="module", autouse=True)
def state_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give each module its own state folder, which has the user's ledger of openings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test its own state folder, without the openings of others.

    Pytest's numbered folders take longer the more there are.
    """
    copy_migrated()
    folder = tmp_path_factory.getbasetemp() / "states" / str(next(STATES))
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv(REFERRED, "")
    trust.ALLOWED.clear()  # commands in this process allow what their options say
    return folder


@pytest.fixture(scope="session", autouse=True)
def token(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Set one token for all Ray clusters of the tests: Ray reads it once per process."""
    file = tmp_path_factory.mktemp("auth") / "auth_token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(file)


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Yield a shared cluster of two nodes, because its start takes as long as most tests.

    The nodes' environment has a secret, and the programs of the second node print to standard error.
    """
    token = tmp_path_factory.mktemp("token") / "auth_token"
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # no secret of the tests that follow in this process
            patch.setenv("SECRET_WORD", SECRET)
            nodes = stack.enter_context(ray_nodes(token))
            patch.setenv("OMP_DISPLAY_ENV", "TRUE")  # OpenMP prints its settings to standard error
            nodes.add(cpus=1)
        yield nodes


@pytest.fixture(scope="module")
def on_nodes(nodes: Nodes) -> Iterator[None]:
    """Run a module's searches on the shared cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", nodes.gcs_address)
        yield


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of sixteen classes of ten small images, not to be changed."""
    return draw_folder(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the weights of a ResNet-18 that nobody trained."""
    return save_resnet(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> "SmallModel":
    """Return a model that was trained for one epoch; not to be changed."""
    from support.small_model import small_model

    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def model(made: "SmallModel") -> "Embedder":
    """Return that model, loaded."""
    return holdout.load(made.folder, device="cpu")


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> "Callable[[str], Finished]":
    """Return a function that gives a finished search of a kind, not to be changed; it is run once."""
    from support.kinds import finished

    return functools.cache(lambda kind: finished(kind, tmp_path_factory.mktemp("kind")))


@pytest.fixture(scope="session")
def lot(tmp_path_factory: pytest.TempPathFactory) -> "FinishedCampaign":
    """Return a finished campaign whose classes no earlier search of the user opened; not to be changed."""
    from support.finished_search import campaign_here
    from support.kinds import LOT, FinishedCampaign

    runs = tmp_path_factory.mktemp("lot") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with campaign_here(runs, LOT) as (campaign, result):
            return FinishedCampaign(runs, campaign, result)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[World]":
    """Yield the world that hostile tests attack: a finished search and files of every kind; not to be changed."""
    from hostile.world import World
    from support.listening import listening

    with listening() as (port, heard):
        world = World(tmp_path_factory.mktemp("world"), port, heard)
        world.begin()
        yield world


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """Return a function that writes a small published data set once: eight classes a half, of three images each."""
    above = tmp_path_factory.mktemp("trees")
    return functools.cache(lambda name: make_tree(name, above / name, classes_per_half=8, images_per_class=3))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Yield a small file system that can be filled."""
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def search_file(image_folder: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that makes search files on the small folder."""
    return lambda **changes: small_search(image_folder, **changes)


@pytest.fixture(scope="session")
def search_made(image_folder: Path) -> Callable[..., WritableRecords]:
    """Return a function that opens a search in a runs folder without running it."""

    def make(runs: Path, **changes: Any) -> WritableRecords:
        return open_search(with_training_images(make_plan(parse_config(small_search(image_folder, **changes)), runs)))

    return make


@pytest.fixture
def opened(search_made: Callable[..., WritableRecords], tmp_path: Path) -> Callable[..., WritableRecords]:
    """Return a function that opens a search in the test's own runs folder without running it."""
    return lambda **changes: search_made(tmp_path / "runs", **changes)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory of commands that have to be refused before they reach Ray."""
    monkeypatch.setenv("RAY_ADDRESS", NOWHERE)
    monkeypatch.chdir(tmp_path)
    return tmp_path
