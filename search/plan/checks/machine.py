"""Whether there are machines for the trials."""

import os
import socket
from collections.abc import Callable

from search.config.search_config import SearchConfig
from search.plan.checks.data import BATCH_KEYS
from search.plan.checks.findings import Findings
from trainables.mistakes import raise_if_any

PATIENCE_S = 10


def check_machine(found: Findings, config: SearchConfig) -> None:
    """This machine has what a trial occupies; of a cluster, whether something answers there.

    What a cluster has is asked when it is connected to, before anything is created.
    """
    lacking: list[str] = []
    if address := os.environ.get("RAY_ADDRESS"):
        found.add(_cluster_mistakes(address))
    else:
        for key, there in {"cpus_per_trial": lambda: os.cpu_count() or 1, "gpus_per_trial": _gpus}.items():
            if not found.left_out.touched(f"resources.{key}"):
                lacking += _lacking(key, getattr(config.resources, key), there)
        found.add(lacking)
    if not lacking:
        found.check(lambda: raise_if_any(_empty_shares(config)), "resources.gpus_per_trial", *BATCH_KEYS)


def _empty_shares(config: SearchConfig) -> list[str]:
    gpus = config.resources.gpus_per_trial
    smallest = min(config.training_of(loss).batch_size for loss in config.loss_names)
    if gpus <= max(1, smallest):
        return []
    return [
        f"resources.gpus_per_trial is {gpus:g} and a batch has {smallest} images (training.batch_size), so that a GPU "
        "would have none of it; give larger batches or ask for fewer GPUs."
    ]


def _lacking(key: str, wanted: float, there: Callable[[], int]) -> list[str]:
    if not wanted or wanted <= (available := there()):
        return []
    return [
        f"resources.{key} is {wanted:g} and this machine has {available} {key[:3].upper()}s; ask for fewer, or set "
        "RAY_ADDRESS to a cluster that has them."
    ]


def _gpus() -> int:
    import torch  # takes seconds, and most searches of a machine without GPUs ask for none

    return torch.cuda.device_count()


def _cluster_mistakes(address: str) -> list[str]:
    """Whether something listens at ``RAY_ADDRESS``: Ray itself would ask for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if not port.isdigit():
        return []  # a word of Ray's own, such as auto
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except OSError as error:
        return [
            f"RAY_ADDRESS is {address!r} and nothing answers there ({error.strerror or error}); start Ray there, mend "
            "the address, or unset it to search on this machine alone."
        ]
    return []
