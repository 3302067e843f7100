"""The program ``make gpu-day``: everything that only a GPU can answer, in at most 12 minutes.

    python -m benchmarks.gpu_day FOLDER [--rehearse]

It needs PyTorch, and measures more with torchvision, timm, pytorch-metric-learning, faiss, and Ray with Optuna and
MLflow. Each step is a process with a time limit that appends its rows to ``gpu-day.jsonl``; after each one
``gpu-day.md`` is written again, so a step that fails costs only its own results. With ``--rehearse`` everything is
tiny, to check on a CPU that it runs.

Shapes: N items, B a batch, D embedding dimensions.
"""

import argparse
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import best_device, machine, medians, peak_bytes
from trainables.data import DATASETS
from trainables.data.store.store_spec import StoreSpec
from trainables.losses import LOSSES
from trainables.metrics.evaluation import kmeans
from trainables.metrics.gallery import nearest
from trainables.models import ModelConfig
from trainables.training import steps as ways
from trainables.training.spec import TrialSpec
from trainables.training.steps import Mode, compiled
from trainables.training.train import LateValue, Training
from trainables.training.training_config import TrainingConfig

ROOT = Path(__file__).parents[1]
ROWS, PAGE = "gpu-day.jsonl", "gpu-day.md"
DEVICE = best_device()
D = 512
Row = dict[str, Any]
Keep = Callable[[Row], None]


def has(package: str) -> bool:
    """Return True if ``package`` is installed."""
    return importlib.util.find_spec(package) is not None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the measurements; a time is the median of steps within ``seconds``, ``steps`` at a time."""

    resnet50: tuple[str, int, int]
    lite0: tuple[str, int, int]
    vit: tuple[str, int, int]
    steps: int
    seconds: float
    heads: tuple[int, int, int, int]
    losses: tuple[int, ...]
    fine_tuned: tuple[int, int, int]
    galleries: tuple[int, ...]


REAL = Sizes(
    resnet50=("resnet50", 128, 224),
    lite0=("timm:tf_efficientnet_lite0" if has("timm") else "torchvision:efficientnet_b0", 60, 112),
    vit=("timm:vit_small_patch16_224" if has("timm") else "torchvision:vit_b_16", 64, 224),
    steps=10, seconds=5, heads=(16, 20, 5421, 1280), losses=(64, 180, 384, 1024), fine_tuned=(12, 3, 1800),
    galleries=(60_502, 1_000_000),
)  # fmt: skip
TINY = Sizes(
    resnet50=("convnet", 8, 32), lite0=("convnet", 8, 32), vit=("convnet", 8, 32), steps=1, seconds=0,
    heads=(2, 2, 80, 16), losses=(16,), fine_tuned=(1, 2, 160), galleries=(300,),
)  # fmt: skip
"""``resnet50``, ``lite0`` and ``vit`` are network, batch, pixels; ``heads`` are heads, epochs, items, features;
``fine_tuned`` are trainings, epochs, images."""


# Trainings.


def spec_of(images: StoreSpec, model: ModelConfig, folder: Path, *, validated: bool, **settings: Any) -> TrialSpec:
    """Return a training with Proxy Anchor; a tenth of the classes validates it if it is ``validated``."""
    names = images.class_names
    kept = max(2, len(names) // 10) if validated else 0
    return TrialSpec(
        loss="proxy_anchor", hyperparameters={}, model=model, images=images, seed=0, directory=str(folder),
        training=TrainingConfig(sampler="random", **settings), train_classes=names[kept:],
        validation_classes=names[:kept], metrics=("map_at_r",) if validated else (), objective="map_at_r",
    )  # fmt: skip


def drawn(folder: Path, classes: int, each: int) -> StoreSpec:
    """Return images that are drawn."""
    dataset = DATASETS["glyphs"](num_classes=classes, images_per_class=each)  # type: ignore[call-arg]
    return StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=32, cache=str(folder / "cache"))


def take(training: Training, batch: tuple[torch.Tensor, torch.Tensor], steps: int) -> None:
    """Take steps on one batch, reading each loss one step late, as in an epoch."""
    late = [LateValue(training.steps.take(*batch)) for _ in range(steps)]
    for value in late:
        value.read()


def steps_of(network: tuple[str, int, int], sizes: Sizes, keep: Keep, folder: Path) -> None:
    """Measure steps of a network that are plain, compiled and replayed as graphs."""
    name, batch, side = network
    images, plain = drawn(folder, 8, max(batch // 8, 2) + 2), 0.0
    model = ModelConfig(backbone=name, embedding_dim=D, freeze_bn=True)
    modes: tuple[Mode, ...] = ("plain", "graph", "compile") if DEVICE.type == "cuda" else ("plain",)
    for mode in modes:
        spec = spec_of(images, model, folder / mode, validated=False, batch_size=batch, image_size=side)
        training = Training(spec, DEVICE)
        training.steps.use(mode)
        training.loss.most_pairs = training.steps.begin_epoch(1000, batch * batch, frozen=False)
        still = torch.rand(batch, 3, side, side, device=DEVICE), torch.arange(batch, device=DEVICE) % 8
        begin = time.perf_counter()
        take(training, still, ways.WARM_UPS + 1)
        first = time.perf_counter() - begin
        run = partial(take, training, still, sizes.steps)
        (took,) = medians([run], device=DEVICE, seconds=sizes.seconds, repeats=3)
        plain = plain or took
        keep({
            "what": f"step of {name}, {batch} × {side} px, {mode}", "ms": 1000 * took / sizes.steps,
            "of plain": plain / took, "first steps, s": first, "GB at the peak": peak_bytes(run, device=DEVICE) / 1e9,
            "mode at the end": training.steps.mode,
        })  # fmt: skip


def heads(sizes: Sizes, keep: Keep, folder: Path) -> None:
    """Measure whole trainings of heads on features, with their validations and checkpoints."""
    count, epochs, items, features = sizes.heads
    random = np.random.default_rng(0)
    file, labels = folder / "features.npz", np.arange(items) % (items // 20)
    centres = random.normal(size=(items // 20, features))
    np.savez(file, embeddings=(centres[labels] + random.normal(size=(items, features))).astype("f4"), labels=labels)
    dataset = DATASETS["features"](file=str(file))  # type: ignore[call-arg]
    images = StoreSpec(
        dataset=dataset, class_names=tuple(dataset.classes()), short_side=32, cache=str(folder / "cache")
    )
    model = ModelConfig(backbone=f"features:{features}", embedding_dim=min(64, features))
    settings = {"batch_size": min(120, items // 4), "epochs": epochs}
    compared(
        f"{count} heads of {epochs} epochs on {items} × {features} features",
        lambda compile, number: spec_of(
            images, model, folder / f"{compile}-{number}", validated=True, compile=compile, **settings
        ),
        count, keep,
    )  # fmt: skip


def fine_tuned(sizes: Sizes, keep: Keep, folder: Path) -> None:
    """Measure the trainings of one worker, the time for compiling and capturing included; then each precision."""
    count, epochs, items = sizes.fine_tuned
    name, batch, side = sizes.lite0
    images = drawn(folder, items // 20, 20)
    model = ModelConfig(backbone=name, embedding_dim=64)

    def spec(compile: str | None, number: int, precision: str = "auto") -> TrialSpec:
        return spec_of(
            images, model, folder / f"{compile}-{precision}-{number}", validated=True,
            compile=compile, precision=precision, batch_size=batch, image_size=side, epochs=epochs,
        )  # fmt: skip

    compared(f"{count} trainings of {name} in one worker, {epochs} epochs of {items} images", spec, count, keep)
    for precision in ("bfloat16", "float32"):
        begin = time.perf_counter()
        training = whole(spec(None, 0, precision))
        keep({
            "what": f"a training of {name} in {precision}, plain steps", "s": time.perf_counter() - begin,
            "MAP@R": training.records[-1]["metrics"]["map_at_r"],
        })  # fmt: skip


def search(sizes: Sizes, keep: Keep, folder: Path) -> None:
    """Measure whole searches with Ray: four trials share the GPU, then each has it alone."""
    missing = [package for package in ("ray", "optuna", "mlflow") if not has(package)]
    if missing:
        keep({"what": f"no search: {', '.join(missing)} not installed"})
        return
    _, epochs, items = sizes.fine_tuned
    name, batch, side = sizes.lite0
    for share in (0.25, 1) if DEVICE.type == "cuda" else (0,):
        file = folder / f"share-{share}.yaml"
        config = {
            "name": file.stem, "dataset": {"name": "glyphs", "num_classes": items // 20, "images_per_class": 20},
            "model": {"backbone": name, "embedding_dim": 64}, "losses": ["proxy_anchor"],
            "training": {"epochs": epochs, "batch_size": batch, "images_per_class": 4, "image_size": side},
            "search": {"trials": 8 if share else 2}, "selection": {"finalists": 1}, "final": {"seeds": 2},
            "resources": {"engine": "ray", "gpus_per_trial": share},
        }  # fmt: skip
        file.write_text(json.dumps(config))
        begin = time.perf_counter()
        command = [sys.executable, "-m", "holdout", "run", str(file), "--yes", "--runs", str(folder / "runs")]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        keep({"what": f"search with Ray, {share} GPU a trial", "s": time.perf_counter() - begin})


def compared(what: str, spec: Callable[[str | None, int], TrialSpec], count: int, keep: Keep) -> None:
    """Time ``count`` trainings with ``training.compile: auto`` and with plain steps, after one that is not timed."""
    whole(spec(None, -1))
    row: Row = {"what": what}
    for compile in ("auto", None):
        ways.KNOWN.clear()
        begin = time.perf_counter()
        modes = {whole(spec(compile, number)).steps.mode for number in range(count)}
        row |= {
            f"{compile or 'plain'}, s": time.perf_counter() - begin,
            f"{compile or 'plain'} steps": ", ".join(sorted(modes)),
        }
    keep(row | {"plain over auto": row["plain, s"] / row["auto, s"]})


def whole(spec: TrialSpec) -> Training:
    """Train all epochs."""
    training = Training(spec, DEVICE)
    while not training.finished:
        training.run_epoch()
    return training


# Losses, neighbours, and the machine.


def losses(sizes: Sizes, keep: Keep, folder: Path) -> None:
    """Measure each loss beside that of pytorch-metric-learning if it is installed: all plain, then compiled.

    Compiling takes seconds a loss: if time runs out, it is the larger batch that is missing.
    """
    kinds = ("plain", "compiled") if DEVICE.type == "cuda" else ("plain",)
    for way, batch, (name, params, theirs, note) in itertools.product(kinds, sizes.losses, tuple(_loss_rows())):
        embeddings_BD = torch.randn(batch, D, device=DEVICE, requires_grad=True)
        labels_B = torch.arange(batch, device=DEVICE) // 4
        ours = LOSSES[name](num_classes=100, embedding_dim=D, **params).to(DEVICE)
        ours.most_pairs = 3 * batch
        found: list[Callable[..., torch.Tensor]] = [ours if way == "plain" else compiled(ours, str(folder))]
        if theirs is not None:
            found.append(theirs().to(DEVICE))
        row: Row = {"what": f"loss {name}, batch {batch}, {way}", "parameters": str(params or ""), "note": note}
        row |= dict.fromkeys(("ours, ms", "library, ms", "library over ours", "error"), "")
        try:
            runs = [partial(_differentiated, loss, embeddings_BD, labels_B) for loss in found]
            seconds = medians(runs, device=DEVICE, seconds=min(0.5, sizes.seconds), repeats=5)
            row |= {f"{whose}, ms": 1000 * took for whose, took in zip(("ours", "library"), seconds, strict=False)}
            if theirs is not None:
                row["library over ours"] = row["library, ms"] / row["ours, ms"]
        except Exception as error:  # of a compiler: the result of this row
            row["error"] = f"{type(error).__name__}: {error!s:.100}"
        keep(row)


def _loss_rows() -> Iterator[tuple[str, dict[str, Any], Callable[[], torch.nn.Module] | None, str]]:
    if not has("pytorch_metric_learning"):
        yield from ((name, {}, None, "") for name in LOSSES)
        return
    from benchmarks.losses import ROWS as PEERS

    yield from ((row.name, row.hyperparameters, row.theirs, row.note) for row in PEERS if row.miner is None)


def _differentiated(loss: Callable[..., torch.Tensor], embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> None:
    loss(embeddings_BD, labels_B).backward()
    embeddings_BD.grad = None


def neighbours(sizes: Sizes, keep: Keep, folder: Path) -> None:
    """Measure the search of neighbours; and k-means."""
    for count in sizes.galleries:
        unit_ND = torch.nn.functional.normalize(torch.randn(count, D, device=DEVICE))
        queries_QD = unit_ND[:60_502]
        (took,) = medians([partial(nearest, queries_QD, unit_ND, 11)], device=DEVICE, seconds=0, repeats=3)
        keep({"what": f"11 neighbours of {len(queries_QD)} among {count} × {D}", "s": took})
    unit_ND, clusters = unit_ND[: sizes.galleries[0]], sizes.galleries[0] // 5
    (took,) = medians([lambda: kmeans(unit_ND, clusters, seed=0)], device=DEVICE, seconds=0, repeats=1)
    keep({"what": f"k-means of {len(unit_ND)} × {D} into {clusters} clusters", "s": took})


def about(sizes: Sizes, keep: Keep, folder: Path) -> None:
    """Say what is measured: the machine and its packages."""
    packages = [name for name in ("torchvision", "timm", "pytorch_metric_learning", "faiss", "ray") if has(name)]
    keep({
        "what": machine(DEVICE), "torch": torch.__version__, "CUDA": str(torch.version.cuda),
        "installed": ", ".join(packages),
    })  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Step:
    """A measurement and its limit in seconds, with the start of its process."""

    name: str
    run: Callable[[Sizes, Keep, Path], None]
    limit: int


STEPS = (
    Step(name="machine", run=about, limit=30),
    Step(name="heads", run=heads, limit=80),
    Step(name="resnet50", run=lambda sizes, keep, folder: steps_of(sizes.resnet50, sizes, keep, folder), limit=90),
    Step(name="lite0", run=lambda sizes, keep, folder: steps_of(sizes.lite0, sizes, keep, folder), limit=70),
    Step(name="losses", run=losses, limit=130),
    Step(name="fine-tuned", run=fine_tuned, limit=110),
    Step(name="neighbours", run=neighbours, limit=40),
    Step(name="vit", run=lambda sizes, keep, folder: steps_of(sizes.vit, sizes, keep, folder), limit=70),
    Step(name="search", run=search, limit=100),
)
"""The most important ones first; 12 minutes at most."""


def measure(step: Step, sizes: Sizes, folder: Path) -> None:
    """Run one step in this process; its rows are appended to the file as they are measured."""

    def keep(row: Row) -> None:
        rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}
        with (folder / ROWS).open("a") as file:
            file.write(json.dumps({"step": step.name, **rounded}) + "\n")

    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(scratch, "inductor")))
        step.run(sizes, keep, Path(scratch))


def page(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown: a table for each step and its columns."""
    lines = ["# Measured on a GPU"]
    for (step, *columns), found in itertools.groupby(rows, key=lambda row: (row["step"], *list(row)[1:])):
        cells = [columns, ["---"] * len(columns), *([str(row[column]) for column in columns] for row in found)]
        lines += ["", f"**{step}**", "", *(f"| {' | '.join(row)} |" for row in cells)]
    return "\n".join([*lines, ""])


def run_all(folder: Path, *options: str, steps: Sequence[Step] = STEPS) -> int:
    """Run all steps, each in a process; return 1 if one failed or ran out of time."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ROWS).write_text("")
    failed = False
    for step in steps:
        print(f"{step.name}: at most {step.limit} s …", flush=True)
        command = [sys.executable, "-m", "benchmarks.gpu_day", str(folder), "--step", step.name, *options]
        try:
            code = subprocess.run(command, cwd=ROOT, timeout=step.limit).returncode
            outcome = f"failed with exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            outcome = "ran out of time"
        if outcome:
            failed = True
            with (folder / ROWS).open("a") as file:
                file.write(json.dumps({"step": step.name, "what": outcome}) + "\n")
        rows = [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]
        (folder / PAGE).write_text(page(rows))
    print(folder / PAGE)
    return int(failed)


def main(*arguments: str) -> int:
    """Run all steps, or in this process the one that is named."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu_day")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--step", choices=[step.name for step in STEPS])
    given = parser.parse_args(arguments)
    if given.step is None:
        return run_all(given.folder, *["--rehearse"] * given.rehearse)
    (step,) = (step for step in STEPS if step.name == given.step)
    measure(step, TINY if given.rehearse else REAL, given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
