"""Losses compared to pytorch-metric-learning's, forward and backward: python -m benchmarks.losses

Shapes: B batch, D embedding, C classes, K proxies per class.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from pytorch_metric_learning import distances, losses, miners, reducers

from benchmarks.timing import Step, best_device, machine, medians, peak_bytes
from trainables.losses import LOSSES

if TYPE_CHECKING:
    from rich.console import Console

C, D, BATCHES, IMAGES_PER_CLASS = 100, 512, (180, 384), 4
GOALS = ("proxy_anchor", "soft_triple", "multi_similarity", "contrastive", "lifted_structure", "smooth_ap", "pnp")
SOP_CLASSES, SOP_BATCH = 11318, 112


def _cosine(**more: Any) -> dict[str, Any]:
    return {"distance": distances.CosineSimilarity(), **more}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison; ``theirs`` is None if the library lacks the loss, ``note`` says how its formula differs."""

    name: str
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    theirs: Callable[[], torch.nn.Module] | None = None
    miner: Callable[[], torch.nn.Module] | None = None
    note: str = ""


SHAPE = {"num_classes": C, "embedding_size": D}
ROWS = (
    Row(
        name="contrastive",
        theirs=lambda: losses.ContrastiveLoss(pos_margin=1, neg_margin=0.5, **_cosine()),
    ),
    Row(
        name="triplet",
        hyperparameters={"mining": "all"},
        theirs=lambda: losses.TripletMarginLoss(margin=0.1, **_cosine(reducer=reducers.MeanReducer())),
    ),
    Row(
        name="triplet",
        theirs=lambda: losses.TripletMarginLoss(margin=0.1, **_cosine()),
        miner=lambda: miners.TripletMarginMiner(margin=0.1, type_of_triplets="semihard", **_cosine()),
        note="every semi-hard negative, not the hardest of them",
    ),
    Row(
        name="lifted_structure",
        theirs=lambda: losses.LiftedStructureLoss(neg_margin=0, pos_margin=0.5, **_cosine()),
        note="sums by pair, not by anchor",
    ),
    Row(
        name="lifted_structure",
        theirs=lambda: losses.GeneralizedLiftedStructureLoss(neg_margin=0, pos_margin=0.5, **_cosine()),
    ),
    Row(name="npair", theirs=lambda: losses.NPairsLoss(), note="one pair a class"),
    Row(
        name="margin",
        hyperparameters={"mining": "all"},
        theirs=lambda: losses.MarginLoss(margin=0.5, beta=1.2, learn_beta=True),
        note="every triplet, not every pair",
    ),
    Row(
        name="multi_similarity",
        hyperparameters={"epsilon": None},
        theirs=lambda: losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
    ),
    Row(
        name="multi_similarity",
        theirs=lambda: losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
        miner=lambda: miners.MultiSimilarityMiner(epsilon=0.1),
    ),
    Row(name="softmax", theirs=lambda: losses.NormalizedSoftmaxLoss(**SHAPE, temperature=1.0)),
    Row(
        name="proxy_nca",
        theirs=lambda: losses.ProxyNCALoss(**SHAPE, softmax_scale=1.0),
        note="squared distances, own proxy in the denominator",
    ),
    Row(name="arcface", theirs=lambda: losses.ArcFaceLoss(**SHAPE, margin=28.6, scale=64)),
    *(
        Row(
            name="soft_triple",
            hyperparameters=hyperparameters,
            theirs=lambda: losses.SoftTripleLoss(**SHAPE, centers_per_class=10, la=20, gamma=0.1, margin=0.1),
            note=note,
        )
        for hyperparameters, note in (({"tau": 0.0}, ""), ({}, "no centre regulariser"))
    ),
    Row(name="proxy_anchor", theirs=lambda: losses.ProxyAnchorLoss(**SHAPE, margin=0.1, alpha=32)),
    Row(name="mpa"),
    Row(name="mpa_dw"),
    Row(name="mpa_ap"),
    Row(name="proxy_push"),
    Row(name="proxy_push", hyperparameters={"similarity": "data"}),
    Row(
        name="pnp",
        theirs=lambda: losses.PNPLoss(alpha=4, anneal=0.01, variant="Dq"),
        note="the query is a positive of itself",
    ),
    Row(
        name="smooth_ap",
        theirs=lambda: losses.SmoothAPLoss(temperature=0.01),
        note="the query is a positive of itself",
    ),
    Row(name="topk_precision"),
    Row(name="angular", theirs=lambda: losses.AngularLoss(alpha=45)),
)


def trained(loss: torch.nn.Module, embeddings_BD: torch.Tensor, labels_B: torch.Tensor, miner: Any = None) -> Step:
    """Return a function that runs forward and backward and drops the gradients."""

    def step() -> None:
        value = (
            loss(embeddings_BD, labels_B, miner(embeddings_BD, labels_B)) if miner else loss(embeddings_BD, labels_B)
        )
        value.backward()
        embeddings_BD.grad = None
        loss.zero_grad(set_to_none=True)

    return step


def compared(row: Row, batch: int, device: torch.device) -> list[float]:
    """Return the median seconds of ours, and of theirs if there is one."""
    torch.manual_seed(0)
    embeddings_BD = torch.randn(batch, D, device=device, requires_grad=True)
    labels_B = torch.arange(batch, device=device) // IMAGES_PER_CLASS
    ours = LOSSES[row.name](num_classes=C, embedding_dim=D, **row.hyperparameters).to(device)
    steps = [trained(ours, embeddings_BD, labels_B)]
    if row.theirs is not None:
        miner = row.miner().to(device) if row.miner else None
        steps.append(trained(row.theirs().to(device), embeddings_BD, labels_B, miner))
    return medians(steps, device=device)


def compare(console: "Console", device: torch.device) -> None:
    """Print a table of all losses, and the geometric means of those with a target."""
    from rich.progress import track  # late: the machine of `make gpu-day` has only PyTorch
    from rich.table import Table

    table = Table(title=f"forward + backward, {D} dimensions, {C} classes, {machine(device)}; ms, median")
    for heading in (
        "loss",
        "hyperparameters",
        "batch",
        "ours",
        "library",
        "ratio",
        "the library's formula, if another",
    ):
        table.add_column(heading, justify="left" if heading[0] in "lht" and heading != "library" else "right")
    ratios: dict[tuple[str, int], list[float]] = {}
    alike: list[float] = []
    work = [(row, batch) for row in ROWS for batch in BATCHES]
    for row, batch in track(work, console=console, transient=True):
        seconds = compared(row, batch, device)
        cells = [f"{1e3 * value:.2f}" for value in seconds]
        if row.theirs is None:
            cells += ["–", "–"]
        else:
            ratio = seconds[1] / seconds[0]
            ratios.setdefault((row.name, batch), []).append(ratio)
            alike += [] if row.note else [ratio]
            cells.append(f"{ratio:.2f}×")
        chosen = ", ".join(f"{key}={value}" for key, value in row.hyperparameters.items())
        table.add_row(row.name, chosen, str(batch), *cells, row.note)
    console.print(table)
    of_goals = {key: values for key, values in ratios.items() if key[0] in GOALS}
    first = [values[0] for values in of_goals.values()]
    least = [min(values) for values in of_goals.values()]
    console.print(
        f"geometric mean of {', '.join(GOALS)}: {_geometric_mean(first):.1f}×, with the library's fastest variant of"
        f" each {_geometric_mean(least):.1f}×; least of the rows of the same formula {min(alike):.2f}×"
    )


def _geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def compare_large(console: "Console", device: torch.device) -> None:
    """Print proxy losses at the size of Stanford Online Products, compared to their matrix products alone."""
    from rich.table import Table

    torch.manual_seed(0)
    table = Table(title=f"{SOP_CLASSES} classes, batch {SOP_BATCH}, {machine(device)}: forward + backward, median")
    for heading in ("loss", "proxies a class", "ms", "ratio to bare products", "peak MB"):
        table.add_column(heading, justify="left" if heading == "loss" else "right")
    embeddings_BD = torch.randn(SOP_BATCH, D, device=device, requires_grad=True)
    labels_B = torch.randint(SOP_CLASSES, (SOP_BATCH // IMAGES_PER_CLASS,), device=device)
    labels_B = labels_B.repeat_interleave(IMAGES_PER_CLASS)
    for name, count in (("proxy_anchor", 1), ("mpa", 2), ("mpa_dw", 2), ("mpa_ap", 2), ("soft_triple", 2)):
        several = {"proxies_per_class": count} if count > 1 else {}
        loss = LOSSES[name](num_classes=SOP_CLASSES, embedding_dim=D, **several).to(device)
        steps = [bare_products(count, embeddings_BD), trained(loss, embeddings_BD, labels_B)]
        seconds = medians(steps, device=device, seconds=6.0, repeats=15)
        peaks = [peak_bytes(step, device=device) for step in steps]
        for label, value, peak in zip(("bare products", name), seconds, peaks, strict=True):
            cells = (f"{1e3 * value:.0f}", f"{value / seconds[0]:.2f}×", f"{peak / 1e6:.0f}")
            table.add_row(label, str(count), *cells)
    console.print(table)


def bare_products(count: int, embeddings_BD: torch.Tensor) -> Step:
    """Return a function that computes the products of embeddings and normalised proxies, and both gradients."""
    proxies_PD = torch.randn(SOP_CLASSES * count, D, device=embeddings_BD.device, requires_grad=True)
    gradient_BP = torch.randn(len(embeddings_BD), len(proxies_PD), device=embeddings_BD.device)

    def step() -> None:
        (embeddings_BD @ torch.nn.functional.normalize(proxies_PD).T).backward(gradient_BP)
        embeddings_BD.grad = proxies_PD.grad = None

    return step


def main() -> None:
    from rich.console import Console

    console = Console(width=150)
    device = best_device()
    compare(console, device)
    compare_large(console, device)


if __name__ == "__main__":
    main()
