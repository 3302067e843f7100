"""Training steps with ``training.compile`` compared with plain ones, on a CPU.

    python -m benchmarks.compiled [NETWORK:SIDE …]

One thread, batches of 60, Proxy-Anchor. "Compiling" is the first step of a training with an empty cache on disk, "from
the cache" that of the next training.
"""

import itertools
import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu.sizes import ON_CPU
from benchmarks.gpu.steps import still_batch, take_steps, training_of
from benchmarks.timing import machine, medians
from trainables.data import DATASETS
from trainables.data.store.spec import StoreSpec

NETWORKS = ("convnet:32", "resnet18:64", "resnet50:112", "timm:tf_efficientnet_lite0:112")
CPU = torch.device("cpu")


def main(*networks: str) -> None:
    """Print one row per network."""
    torch.set_num_threads(1)
    table = Table(title=f"Batches of 60; {machine(CPU)}")
    for column in ("network", "plain, s", "compiled, s", "faster", "compiling, s", "from the cache, s", "pays after"):
        table.add_column(column, justify="left" if column == "network" else "right")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(scratch, "inductor"))
        dataset = DATASETS["glyphs"](num_classes=16, images_per_class=4)  # type: ignore[call-arg]
        images = StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=32, cache=scratch)
        for named in networks or NETWORKS:
            network, side = named.rsplit(":", 1)
            sizes = replace(ON_CPU, side=int(side), short_side=int(side), batch=60)
            batches = itertools.repeat(still_batch(sizes, CPU))
            steps, firsts = [], []
            for number, mode in enumerate((None, "default", "default")):
                torch.compiler.reset()
                folder = str(Path(scratch, named.replace(":", "-"), str(number)))
                training = training_of(network, images, sizes, folder, CPU, precision="float32", compile=mode)
                steps.append(partial(take_steps, training, batches, 1))
                begin = time.perf_counter()
                steps[-1]()
                firsts.append(time.perf_counter() - begin)
            plain, compiled = medians([steps[0], steps[-1]], device=CPU, seconds=20, repeats=5)
            saved = plain - compiled
            table.add_row(
                named, f"{plain:.3f}", f"{compiled:.3f}", f"{plain / compiled:.2f}×", *(f"{s:.0f}" for s in firsts[1:]),
                f"{firsts[1] / saved:.0f} steps" if saved > 0.02 * plain else "never",
            )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
