"""List the benchmarks, or run one: `python -m benchmarks [NAME [ARGUMENT]…]`."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its ``programs`` (modules, with arguments) run in order; ``threads`` limits those of PyTorch.

    ``arguments`` names what is given after the name, in brackets if it may be left out.
    """

    about: str
    programs: tuple[tuple[str, ...], ...]
    arguments: str = ""
    threads: int | None = None

    def run(self, arguments: list[str]) -> int:
        """Run the programs; return the exit code of the first that fails, 0 if none does."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
        threads = {} if self.threads is None else {"OMP_NUM_THREADS": str(self.threads)}
        for program in self.programs:
            command = [sys.executable, "-m", *program, *arguments]
            if code := subprocess.run(command, env={**os.environ, "PYTHONPATH": path, **threads}).returncode:
                return code
        return 0


def _one(about: str, module: str, arguments: str = "", threads: int | None = None) -> Benchmark:
    return Benchmark(about, ((f"benchmarks.{module}",),), arguments, threads)


STATISTICS = ("pairs", "intervals", "classes", "edges", "importances", "samplers", "rungs")

BENCHMARKS = {
    "anytime": _one("a search with TPE and halving, and a grid search, by the epochs spent", "anytime", "IMAGES RUNS"),
    "checkpoints": _one("time that epochs wait for checkpoints", "checkpoints"),
    "choice": _one(
        "searches and their choice, replayed from tables of real trainings: an hour of a core",
        "search",
        "[--runs N] [--trials N] [--ways WAY…] [--processes N]",
        threads=1,
    ),
    "complexity": _one("growth of a step with its sizes (Tables 2 and 3 of Multi Proxy Anchor)", "complexity"),
    "embed": _one("images per second from files to embeddings", "embed", "[IMAGES]"),
    "features": _one("epochs on cached features and on images", "features", "WEIGHTS IMAGES"),
    "first": _one(
        "first trials of fine-tuning from frozen features: twenty minutes, resumable", "first_on_features",
        "WEIGHTS IMAGES RESULTS", threads=1,
    ),
    "gallery": _one("validation galleries: six minutes on Omniglot", "gallery", "[IMAGES]", threads=1),
    "initial-proxies": _one("initial proxies: minutes a folder", "initial_proxies", "IMAGES [LOSS]…", threads=1),
    "input": _one("images per second into training", "input", "[IMAGES]"),
    "kmeans": _one("k-means and faiss.Kmeans: time, or NMI on a folder's images", "kmeans", "[N CLUSTERS | IMAGES]"),
    "launches": _one("kernels that each loss launches on a GPU", "launches"),
    "lora": _one("a step with a frozen backbone, LoRA and fine-tuning", "lora", "IMAGES [BACKBONE]", threads=1),
    "loss-scales": _one("scales of lifted structure, Proxy-NCA: minutes a folder", "loss_scales", "IMAGES", threads=1),
    "losses": _one("losses and pytorch-metric-learning's", "losses"),
    "metrics": _one("metrics and the neighbour search alone", "metrics", "[IMAGES [PER_CLASS]]"),
    "overhead": _one("searches and their ideal duration", "overhead"),
    "precision": _one("bfloat16 and float32 with the same seeds", "precision", "IMAGES [SEEDS]", threads=1),
    "proxies": Benchmark(
        "K and the number of shapes in a class: nine minutes",
        (("holdout", "run", str(ROOT / "benchmarks" / "proxies.yaml")),),
        "[OPTION]…",
    ),
    "rankings": _one("five rankings of one query (Table 3 of Multi Proxy Anchor)", "rankings"),
    "scale": _one("the driver's work by slots and trials; QUICK=1 omits 5,000 trials", "scale"),
    "slots": _one("utilisation of the slots of a Ray cluster", "slots", "[CASE]"),
    "start": _one("time and memory of commands", "start"),
    "statistics": Benchmark(
        "the simulations behind the statistics, samplers and rungs: minutes",
        tuple((f"benchmarks.statistics.{name}",) for name in STATISTICS),
        threads=1,
    ),
    "ways": _one(
        "ways to train a pretrained network in equal time: an hour of a core, resumable",
        "ways_to_train", "WEIGHTS IMAGES RESULTS [SECONDS [NETWORK SIDE]]", threads=1,
    ),
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run the benchmark that the first argument names, or list all."""
    if arguments and arguments[0] in BENCHMARKS:
        return BENCHMARKS[arguments[0]].run(arguments[1:])
    width = max(len(f"{name} {row.arguments}") for name, row in BENCHMARKS.items())
    for name, row in BENCHMARKS.items():
        print(f"{f'{name} {row.arguments}':{width}}  {row.about}")
    if arguments:
        print(f"There is no benchmark {arguments[0]!r}.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
