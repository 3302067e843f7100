"""Capacity: the number of trials that machines, clusters and GPUs can run at once."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from search.engines.base import Resources
from trainables.common.errors import InvalidInput
from trainables.training.spec import DeviceMemory

Node = Mapping[str, float]
"""The resources of a machine by Ray's names: CPU, GPU."""

_ROUNDING = 1e-6

CONTEXT_BYTES = 600_000_000
"""GPU memory of a process in addition to PyTorch's tensors: CUDA itself and its libraries."""


def wanted(resources: Resources) -> Node:
    return {"CPU": resources.cpus_per_trial, "GPU": resources.gpus_per_trial}


def trials_on(node: Node, asked: Node) -> int:
    """Return the number of trials that fit on one node. A fraction of a GPU is always of a single GPU."""
    fits = []
    for kind, count in asked.items():
        has = node.get(kind, 0)
        if kind == "GPU" and 0 < count < 1:
            fits.append(int(has) * int(1 / count + _ROUNDING))
        elif count:
            fits.append(int(has / count + _ROUNDING))
    return min(fits)


def room(resources: Resources, nodes: Iterable[Node], may_come: Iterable[Node]) -> int:
    """Return the number of trials that fit on ``nodes``, or on the nodes that ``may_come`` if that is more."""
    asked = wanted(resources)
    return max(sum(trials_on(node, asked) for node in group) for group in (nodes, may_come))


def at_once(
    resources: Resources, max_concurrent: int | None, nodes: Iterable[Node], may_come: Iterable[Node] = ()
) -> int:
    """Return the number of trials at once, as many as have :func:`room`, ``max_concurrent`` at most; raise if none."""
    nodes, may_come = list(nodes), list(may_come)
    if fit := room(resources, nodes, may_come):
        return min(fit, max_concurrent or fit)
    raise InvalidInput(f"resources: no trial fits on a machine: {too_little(resources, nodes)}; ask for less.")


def too_little(resources: Resources, nodes: Sequence[Node]) -> str:
    """Describe what a trial asks for and what the machines of a cluster have."""
    asked = _shown(wanted(resources))
    if not nodes:
        return f"each requests {asked}, the cluster has no machine"
    machines = [_shown(node) for node in nodes]
    counted = [f"{machines.count(kind)} with {kind}" for kind in dict.fromkeys(machines)]
    return f"each requests {asked}, the cluster has {len(nodes)} ({', '.join(counted)})"


def _shown(node: Node) -> str:
    return f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs"


def too_tight(gpus_per_trial: float, memory: DeviceMemory) -> str | None:
    """Return a warning with a fraction that fits if the trials on one GPU need more memory than it has, else None."""
    packed = int(1 / gpus_per_trial + _ROUNDING)
    need, fit = fitting(memory)
    if packed <= fit:
        return None
    return (
        f"resources.gpus_per_trial is {gpus_per_trial:g}, which packs {packed} trials on a GPU of "
        f"{memory['total'] / 1e9:.1f} GB; a trial took {need / 1e9:.1f} GB of it, so {fit} fit: "
        f"set it to {_share(fit):g}."
    )


def roomier(resources: Resources, memory: DeviceMemory, node: Node) -> str:
    """Return a share with which more trials run on each GPU of ``node``, as a key of a search file, else nothing."""
    packed = int(1 / resources.gpus_per_trial + _ROUNDING)
    most = min(fitting(memory)[1], int(node["CPU"] / node["GPU"] / resources.cpus_per_trial + _ROUNDING))
    if most <= packed:
        return ""
    return f"{most} could train on each at once, now {packed}: set resources.gpus_per_trial: {_share(most):g}"


def _share(trials: int) -> float:
    return int(1000 / trials) / 1000  # rounded down: rounded up, one fewer would be packed


def fitting(memory: DeviceMemory) -> tuple[int, int]:
    """Return the bytes of GPU memory that a trial needs, and the number of such trials that fit, at least one."""
    need = memory["peak"] + CONTEXT_BYTES
    return need, max(1, memory["total"] // need)


def growth(bootstrap: Path) -> list[Node]:
    """Return the most nodes of a cluster made by ``ray up``, from the file ``bootstrap`` on its head."""
    if not bootstrap.is_file():
        return []
    config = yaml.safe_load(bootstrap.read_bytes())
    limit = config.get("max_workers", 0)
    workers = [kind for name, kind in config["available_node_types"].items() if name != config.get("head_node_type")]
    nodes = [kind.get("resources", {}) for kind in workers for _ in range(kind.get("max_workers", limit))]
    return nodes[:limit]
