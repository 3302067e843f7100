"""The engine on Ray Tune workers: the machines of a cluster, or this one. Importing this module does not import Ray."""

import os
import socket
import stat
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from search.engines import NoEngine
from search.engines.base import Engine, Queue
from search.engines.ray_session import import_ray, ray_session, token_path
from search.packages import missing_packages
from search.tables import AUTO, engine_name, ray_address, ray_mistakes
from spaces.contract import CheckResult
from trainables.common.errors import InvalidInput, counted, raise_if_any
from trainables.common.files import as_path
from trainables.common.storage import DiskFull, ask, in_time
from trainables.data.store.store_spec import StoreSpec


def check_token() -> Iterator[CheckResult]:
    """Check that nobody else can read Ray's token."""
    path = token_path()
    if path is None:
        yield CheckResult("token", "ok", "in the environment")
    elif not path.is_file():
        if os.environ.get("RAY_ADDRESS"):  # elsewhere the first search makes one
            fix = "Copy the file from the cluster's head."
            yield CheckResult("token", "warning", f"{path} does not exist", fix)
    elif path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield CheckResult("token", "failed", f"others may read {path}", f"chmod 600 {path}")
    else:
        yield CheckResult("token", "ok", str(path))


def check_ray() -> Iterator[CheckResult]:
    """Start or reach Ray and count its nodes."""
    if missing_packages(["ray"]):
        return  # a check of its own names them
    for mistake in ray_mistakes():
        state: Literal["failed", "warning"] = "failed" if engine_name(AUTO, 0) == "ray" else "warning"
        yield CheckResult("ray", state, mistake.text, mistake.advice)
        return
    where = ray_address() or "this machine"
    try:
        with ray_session() as ray:
            nodes, resources = len(ray.nodes()), ray.cluster_resources()
    except NoEngine as error:
        fix = "Start Ray at RAY_ADDRESS and copy its token here, or unset it to use this machine."
        yield CheckResult("ray", "failed", str(error), fix)
        return
    cpus, gpus = (int(resources.get(kind, 0)) for kind in ("CPU", "GPU"))
    has = f"{counted(cpus, 'CPU')}, {counted(gpus, 'GPU')}"
    yield CheckResult("ray", "ok", f"{ray.__version__} on {where}: {counted(nodes, 'node')}, {has}")


class RayEngine(Engine):
    """Ray Tune on the cluster of this process's Ray or at ``RAY_ADDRESS``, else on a Ray that ends with the session."""

    title = "Ray"
    checks = (check_token, check_ray)

    @property
    def images_first(self) -> bool:  # type: ignore[override]
        """True on a cluster: nodes that share a disk each unpack the code of a job anew as they join it."""
        return bool(ray_address())

    @contextmanager
    def session(self) -> Iterator[None]:
        for mistake in ray_mistakes():
            raise NoEngine(mistake)
        with ray_session():
            yield

    def load(self) -> None:
        import_ray()
        from search.engines import ray_tune  # noqa: F401

    def slots(self) -> int:
        from search.engines.ray_tune import slots

        return slots(self.resources, self.max_concurrent)

    def prepare(self, images: Sequence[StoreSpec], shared: Sequence[str]) -> None:
        """Decode the images on every node but this one, and check that all share the folders of the checkpoints."""
        from search.engines.ray_tune import on_other_nodes

        with ExitStack() as stack:
            probe_files = {folder: stack.enter_context(probe_file(folder)) for folder in shared}
            answers = on_other_nodes(_ready, images, probe_files)
        raise_if_any(sorted({sentence for answer in answers if isinstance(answer, tuple) for sentence in answer}))
        for answer in answers:
            if isinstance(answer, DiskFull):
                raise answer

    def run(self, queue: Queue, concurrent: int) -> None:
        from search.engines.ray_tune import run_queue

        run_queue(queue, self, concurrent)

    def map(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        from search.engines.ray_tune import map_on_workers

        return map_on_workers(function, arguments, resources=self.resources)


# Preparation of a cluster's nodes before the first trial.


@contextmanager
def probe_file(folder: str) -> Iterator[str]:
    """Create a file in ``folder``, a path or a URL, yield its address and remove it; raise if that is not possible."""
    address = f"{folder}/.shared-{uuid.uuid4().hex}"
    file = as_path(address)
    try:
        in_time(lambda: file.parent.mkdir(parents=True, exist_ok=True))
        in_time(file.touch)
    except Exception as error:  # every storage library raises its own
        raise InvalidInput(
            f"Checkpoints cannot be written to {folder} ({type(error).__name__}: {error}); see that this machine may, "
            "or name another folder or URL (--runs, checkpoints.storage_path)."
        ) from error
    try:
        yield address
    finally:
        ask(file, lambda: file.unlink(missing_ok=True))


def _ready(images: Sequence[StoreSpec], probe_files: dict[str, str]) -> tuple[str, ...] | DiskFull:
    """Prepare this node; return sentences on what it lacks, so that those of all nodes are raised together."""
    node = socket.gethostname()
    missing = [folder for folder, address in probe_files.items() if not in_time(as_path(address).exists)]
    if missing:
        return tuple(
            f"{folder} is not the same on {node}, and checkpoints go there; name a folder that all machines of the "
            "cluster share with --runs, or a URL with checkpoints.storage_path."
            for folder in missing
        )
    try:
        for recipe in images:
            recipe.make()
    except InvalidInput as error:
        return tuple(f"On {node}: {sentence}" for sentence in error.sentences)
    except DiskFull as error:
        return DiskFull(f"On {node}: {error}")
    return ()
