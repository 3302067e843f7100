"""The engine on Ray Tune workers: the machines of a cluster, or this one. Importing this module does not import Ray."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from search.config.tables import AUTO, engine_name, ray_mistakes
from search.engines.base import CheckResult, Engine, Queue
from search.engines.ray_session import NoRay, import_ray, ray_session, token_path
from search.extra import missing_packages
from trainables.data.store.spec import StoreSpec
from trainables.errors import counted


def check_token() -> Iterator[CheckResult]:
    """Check that nobody else can read Ray's token."""
    path = token_path()
    if path is None:
        yield CheckResult(check="token", state="ok", found="in the environment")
    elif not path.is_file():
        fix = "The first search makes one; for a cluster copy the file from its head."
        yield CheckResult(check="token", state="warning", found=f"{path} is not there yet", fix=fix)
    elif path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield CheckResult(check="token", state="failed", found=f"others may read {path}", fix=f"chmod 600 {path}")
    else:
        yield CheckResult(check="token", state="ok", found=str(path))


def check_ray() -> Iterator[CheckResult]:
    """Start or reach Ray and count its nodes."""
    if missing_packages(["ray"]):
        return  # a check of its own names them
    for mistake in ray_mistakes():
        found, _, fix = mistake.rpartition("; ")
        state: Literal["failed", "warning"] = "failed" if engine_name(AUTO, 0) == "ray" else "warning"
        yield CheckResult(check="ray", state=state, found=found, fix=f"{fix[0].upper()}{fix[1:]}")
        return
    where = os.environ.get("RAY_ADDRESS") or "this machine"
    try:
        with ray_session() as ray:
            nodes, resources = len(ray.nodes()), ray.cluster_resources()
    except NoRay as error:
        fix = "Start Ray at RAY_ADDRESS and copy its token here, or unset it to use this machine."
        yield CheckResult(check="ray", state="failed", found=str(error), fix=fix)
        return
    cpus, gpus = (int(resources.get(kind, 0)) for kind in ("CPU", "GPU"))
    has = f"{counted(cpus, 'CPU')}, {counted(gpus, 'GPU')}"
    yield CheckResult(check="ray", state="ok", found=f"{ray.__version__} on {where}: {counted(nodes, 'node')}, {has}")


class RayEngine(Engine):
    """Ray Tune on the cluster at ``RAY_ADDRESS``, or on a Ray of this machine that ends with the session."""

    title = "Ray"
    checks = (check_token, check_ray)

    @property
    def images_first(self) -> bool:  # type: ignore[override]
        """True on a cluster: nodes that share a disk each unpack the code of a job anew as they join it."""
        return bool(os.environ.get("RAY_ADDRESS"))

    @contextmanager
    def session(self) -> Iterator[None]:
        """Connect to Ray."""
        for mistake in ray_mistakes():
            raise NoRay(mistake)
        with ray_session():
            yield

    def load(self) -> None:
        """Import Ray Tune."""
        import_ray()
        from search.engines import ray_nodes, ray_tune  # noqa: F401

    def slots(self) -> int:
        """Return the number of trials that fit on the cluster, grown as far as it may."""
        from search.engines.ray_tune import slots

        return slots(self.resources, self.max_concurrent)

    def prepare(self, images: Sequence[StoreSpec], shared: Sequence[str]) -> None:
        """Decode the images on every node but this one, and check that all share the folders of the checkpoints."""
        from search.engines.ray_nodes import make_nodes_ready

        make_nodes_ready(images, shared)

    def run(self, queue: Queue, concurrent: int) -> None:
        """Train everything in ``queue`` on Ray Tune's actors, which are reused."""
        from search.engines.ray_tune import run_queue

        run_queue(queue, self.worker, self.limits, resources=self.resources, concurrent=concurrent)

    def map(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Return ``function`` of each argument in order, computed by Ray tasks."""
        from search.engines.ray_tune import map_on_workers

        return map_on_workers(function, arguments, resources=self.resources)
