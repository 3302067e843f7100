"""NVIDIA's Multi-Process Service: with it the kernels of several processes run on one GPU at once, and not in turns."""

import shutil
from collections.abc import Mapping
from pathlib import Path

PIPES = Path("/tmp/nvidia-mps")
"""Where its daemon listens unless ``CUDA_MPS_PIPE_DIRECTORY`` says otherwise."""

DAEMON = "nvidia-cuda-mps-control"


def mps_daemon(environment: Mapping[str, str], pipes: Path) -> tuple[str, str]:
    """What was found, and what to do for trials that share a GPU; nothing where the daemon runs.

    Args:
        environment: of the process, which its trials inherit.
        pipes: the folder of the daemon's pipes where the environment names none.
    """
    folder = Path(environment.get("CUDA_MPS_PIPE_DIRECTORY", pipes))
    limits = [f"{name}={value}" for name, value in sorted(environment.items()) if name.startswith("CUDA_MPS_ACTIVE")]
    if (folder / "control").exists():
        return ", ".join([f"the daemon has its pipes in {folder}", *limits]), ""
    turns = "trials that share a GPU take turns on it"
    if shutil.which(DAEMON, path=environment.get("PATH")):
        return f"no daemon has its pipes in {folder}: {turns}", f"Where gpus_per_trial is below 1, run `{DAEMON} -d`."
    return f"{DAEMON} is not installed: {turns}", "It comes with NVIDIA's driver."
