"""Whether one's own parts, which a search file names by their import paths, are there, and what can be in a stack."""

from collections.abc import Callable, Iterator
from typing import Any

from search.config.parts.shipped import shipped_packages
from search.config.search_config import SearchConfig
from search.plan.checks.findings import Findings
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.metrics.own_metric import own_metric
from trainables.metrics.table import name_conflicts
from trainables.mistakes import raise_if_any
from trainables.models.backbones import LIBRARIES, backbone
from trainables.parts import is_own
from trainables.training.stack import why_not_stacked


def check_parts(found: Findings, config: SearchConfig) -> None:
    """Own metrics, batch sampler and network can be imported and are what they should be, and so is what is shipped.

    Losses are looked at with their spaces, and the data set when the file is read.
    """
    for key, path, load in _own_parts(config):
        if not found.left_out.replaced(key):
            found.check(lambda load=load, path=path: load(path))  # type: ignore[misc]
    metrics = [path for key, path, _ in _own_parts(config) if "training" not in key and "model" not in key]
    found.add(name_conflicts(metrics))
    found.check(lambda: shipped_packages(config.ship), "ship")


def check_stack(found: Findings, config: SearchConfig) -> None:
    """Where several trials are to be trained together, each loss can be with its network and batches."""
    parts = ("losses", "model.backbone", "training.sampler", "training_by_loss", "split.folds")
    found.check(
        lambda: raise_if_any(list(dict.fromkeys(_unstacked(config)))),
        "resources.stack",
        "resources.gpus_per_trial",
        *parts,
    )


def _unstacked(config: SearchConfig) -> Iterator[str]:
    stack, gpus = config.resources.stack, config.resources.gpus_per_trial
    if stack > 1 and gpus > 1:
        yield (
            f"resources.stack is {stack} and resources.gpus_per_trial is {gpus:g}: one is for networks of which several"
            " fit on a GPU, the other for those that need several GPUs; set one of them to 1."
        )
    for loss in config.losses if stack > 1 else ():
        reason = why_not_stacked(
            loss=loss.key,
            backbone=config.model.backbone,
            sampler=config.training_of(loss.name).sampler,
            folds=config.split.folds or 0,
        )
        if reason:
            yield f"resources.stack is {stack}, and {reason}; set it to 1, which trains each trial by itself."


def _own_parts(config: SearchConfig) -> Iterator[tuple[str, str, Callable[[str], Any]]]:
    """The key, the import path and what loads it, of each."""
    tested = () if isinstance(config.metrics.test, str) else config.metrics.test
    metrics = {"metrics.validation": config.metrics.validation, "metrics.test": tested}
    for key, paths in {**metrics, "search.objective": (config.search.objective,)}.items():
        yield from ((key, path, own_metric) for path in paths if is_own(path))
    samplers = {"training.sampler": config.training.sampler}
    samplers |= {f"training_by_loss.{loss}": config.training_of(loss).sampler for loss in config.training_by_loss}
    for key, sampler in samplers.items():
        if is_own(sampler):
            yield key, sampler, BATCH_SAMPLERS.__getitem__
    network = config.model.backbone
    if is_own(network) and network.partition(":")[0] not in LIBRARIES:
        yield "model.backbone", network, backbone
