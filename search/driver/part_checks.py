"""Checks of what a search needs besides its data: user-defined parts, network, addresses, folders, machine, vault."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from search.config.names import shipped_packages
from search.config.search_config import SearchConfig
from search.config.validation import Findings
from search.records.plan import BY_LOSS, Plan
from search.tables import engine_name, ray_address, ray_mistakes
from spaces.search_space import SearchSpace
from spaces.space import MODEL
from trainables.common.errors import InvalidInput, Mistake, raise_if_any
from trainables.common.files import given_path
from trainables.common.part_tables import is_own
from trainables.common.process import allotted_cpus, driver_problem
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.metrics import name_conflicts, own_metric
from trainables.models.backbones import backbone, is_of_timm, is_own_network
from trainables.models.config import pooling_problems

# User-defined parts and the network.


def of_trainings(config: SearchConfig, *names: str) -> tuple[str, ...]:
    """Return the keys of the settings ``names`` of all trainings, which a user-defined one does not have."""
    sections = ("training", *(f"{BY_LOSS}.{loss}" for loss in config.loss_names))
    return ("trainable", *(f"{section}.{name}" for section in sections for name in names))


def check_parts(found: Findings, config: SearchConfig) -> None:
    """Check that user-defined metrics, batch samplers, network and shipped packages can be imported and used."""
    parts = list(_own_parts(config))
    for key, path, load in parts:
        if not found.replaced(key):
            found.check(partial(load, path))
    found.add(name_conflicts([path for _, path, load in parts if load is _tried_metric]))
    found.check(lambda: shipped_packages(config.ship), "ship")


def _own_parts(config: SearchConfig) -> Iterator[tuple[str, str, Callable[[str], Any]]]:
    """Yield the key, the import path and the loader of each user-defined part."""
    tested = () if isinstance(config.metrics.test, str) else config.metrics.test
    metrics = {"metrics.validation": config.metrics.validation, "metrics.test": tested}
    for key, paths in {**metrics, "search.objective": (config.search.objective,)}.items():
        yield from ((key, path, _tried_metric) for path in paths if is_own(path))
    samplers = {"training.sampler": config.training.sampler}
    samplers |= {f"{BY_LOSS}.{loss}": config.training_of(loss).sampler for loss in config.training_by_loss}
    for key, sampler in samplers.items():
        if is_own(sampler):
            yield key, sampler, BATCH_SAMPLERS.__getitem__
    network = config.model.backbone
    if is_own_network(network):
        yield "model.backbone", network, backbone


def _tried_metric(path: str) -> None:
    """Load a user-defined metric and compute it once: one of the test alone would fail after the test was opened."""
    own_metric(path)
    import torch  # late: it takes seconds, and few searches have such a metric

    from trainables.metrics.evaluation import evaluate

    embeddings_ND = torch.randn(60, 16, generator=torch.Generator().manual_seed(0))
    evaluate(embeddings_ND, torch.arange(60) % 12, [path])


class Notice(Mistake):
    """A sentence on an entry that is no mistake; one with a fix is a warning."""


SMALLEST = 16
"""Side in pixels of the smallest images that the built-in network accepts."""


def check_network(
    found: Findings, config: SearchConfig, spaces: Mapping[str, SearchSpace], plan: Plan | None = None
) -> tuple[Notice, ...]:
    """Check that the network can be built, with its weights, and embeds one image; return notices about them.

    Weights that may be a variant's are scored on the training classes of ``plan``.
    """
    if config.trainable is not None:
        return ()
    model, size = config.model, config.training.image_size
    rank = next(filter(None, (model.lora.rank, *_searched(spaces, "lora.rank"))), None)
    if model.backbone == "convnet" and model.weights is None and size >= SMALLEST and rank is None:
        return ()  # without importing torch, which takes seconds
    if found.touched("training.image_size"):
        from trainables.models.weights import weights_file

        found.check(partial(weights_file, model), "model.backbone", "model.weights")
        return ()
    if found.check(partial(backbone, model.backbone), "model.backbone") is None:
        return ()  # before PyTorch is imported
    from trainables.models.embedding import learning_adapters, smoke_test

    loaded = found.check(lambda: smoke_test(model, size), "model.backbone", "model.weights")
    if config.final.vault and config.final.vault_items is None and is_own_network(model.backbone):
        from search.vault.models import program_of
        from trainables.inference.model_files import EmbedderSpec

        tried = EmbedderSpec(model=model, decoded_side=size, frame=config.training.frame, batch_size=1, origin={})
        found.check(partial(program_of, tried), "model", "training")
    for pooling in _searched(spaces, "pooling"):  # may not fit a backbone that a library or a user describes
        problems = pooling_problems(pooling, model.backbone, backbone(model.backbone))
        found.add(problem.at(f"space.{MODEL}.pooling", ["space"]) for problem in problems)
    # adapters of any rank learn at the same weights
    adapters = rank and found.check(lambda: learning_adapters(model.changed({"lora.rank": rank}), size), "model")
    notices = (*_of_timm(config), *([Notice("LoRA", f": {adapters}")] if adapters else []))
    if loaded is None:
        return notices
    compared = found.check(lambda: _compared(plan)) if plan is not None and loaded.by_order else None
    text, fix = compared or ("", "")
    return (*notices, Notice("model.weights", f": {loaded}{text}", fix))


def _compared(plan: Plan) -> tuple[str, str]:
    """Return which network the weights fit best, that of the search or a variant, scored untrained; and the advice."""
    from trainables.training.untrained_network import scores_of_variants, shown_variants

    name, dataset = plan.config.model.backbone, plan.images.dataset
    of_class = dataset.classes()
    scores = scores_of_variants(
        plan.config.model, plan.config.training.frame, dataset, plan.short_side,
        tuple(of_class[each] for each in plan.split.train),
    )  # fmt: skip
    if len(scores) < 2:
        text = "; a variant with the same shapes but other paddings or epsilons would fit too"
        return text, "make sure that they are those of model.backbone"
    best = max(scores, key=scores.__getitem__)
    return f"; {shown_variants(scores)}", "" if best == name else f"set model.backbone to {best}"


def _of_timm(config: SearchConfig) -> Iterator[Notice]:
    """Yield what of timm's settings for the network this search takes over."""
    training, model = config.training, config.model
    row = backbone(model.backbone) if is_of_timm(model.backbone) else None
    if row is None or row.crop is None:
        return
    crop, mean, scale = row.crop, *(" ".join(f"{value:g}" for value in values) for values in (row.mean, row.scale))
    resized = crop.resize_size(training.image_size)
    yield Notice(
        "model.backbone",
        f": timm's mean {mean} and std {scale}; training.resize_size is {training.resize_size}, and timm's crop_pct "
        f"{crop.crop_pct:g} gives {resized}; timm evaluates crops of {crop.side} pixels, resized with "
        f"{crop.interpolation} interpolation, and this search those of {training.image_size}, bilinear",
    )


def _searched(spaces: Mapping[str, SearchSpace], name: str) -> set[Any]:
    entries = [space.parameters.get(f"{MODEL}.{name}") for space in spaces.values()]
    return {value for entry in entries if entry is not None for value in entry.steps or entry.ends}


def slow_precision(config: SearchConfig) -> Mistake | None:
    """Return a warning if trials on this machine's CPU would only emulate their precision; None if not."""
    if config.training.precision != "bfloat16" or config.resources.gpus_per_trial or config.trainable is not None:
        return None
    from trainables.models.embedding import emulates_bfloat16  # late: it loads PyTorch, which other checks do not need

    if not emulates_bfloat16():
        return None
    why = "which the CPU of this machine only emulates, without AVX-512: a training may take thirty times as long"
    return Mistake("training.precision", f"is bfloat16, {why}", "set training.precision: auto")


# Addresses, folders, machine and vault.

CONNECT_S = 10
"""Time limit for a cluster to answer, in seconds."""


def check_addresses(found: Findings, config: SearchConfig) -> None:
    """Check that every address in the search file can be used: MLflow server, checkpoint storage, cache."""
    if uri := config.tracking.uri:
        from search.tracking import check_tracking

        found.check(lambda: check_tracking(uri))
    if path := config.checkpoints.storage_path:
        found.check(lambda: _check_store(path))
    if cache := config.dataset.cache:
        found.check(lambda: check_folder("dataset.cache", Path(cache)))


def check_folder(key: str, folder: Path) -> None:
    """Raise :class:`InvalidInput` if ``folder``, or the folder in which it will be created, is not writable."""
    if "\0" in str(folder):
        raise InvalidInput(f"{key}: {str(folder)!r} holds a zero byte, which no path may; name a folder of your own.")
    parent = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidInput(f"{key}: {parent} cannot be written to; name a folder of your own.")


def _check_store(address: str) -> None:
    try:
        path = given_path(address)
    except InvalidInput as error:
        raise InvalidInput(f"checkpoints.storage_path: {error}") from error
    if isinstance(path, Path):
        check_folder("checkpoints.storage_path", path)


def check_machine(found: Findings, config: SearchConfig) -> None:
    """Check that this machine has the resources of a trial or, with a Ray cluster, that it answers.

    Ray must be able to start this Python. A cluster's resources are checked on connection, before anything is created.
    """
    resources, address = config.resources, ray_address()
    is_ray = engine_name(resources.engine, resources.gpus_per_trial) == "ray"
    if address and is_ray:
        found.add(ray_mistakes() or _cluster_mistakes(address))
        return
    lacking = [*_lacking("cpus_per_trial", resources.cpus_per_trial, allotted_cpus())]
    if resources.gpus_per_trial:
        import torch  # takes seconds, and most searches of a machine without GPUs ask for none

        lacking += _lacking("gpus_per_trial", resources.gpus_per_trial, torch.cuda.device_count())
    found.add(lacking or (ray_mistakes() if is_ray else ()))


def _lacking(key: str, wanted: float, available: int) -> Iterator[Mistake]:
    if wanted > available:
        problem = driver_problem() if key == "gpus_per_trial" else None
        because = f" ({problem})" if problem else ""
        text = f"is {wanted:g} and this machine has {available} {key[:3].upper()}s{because}"
        yield Mistake(f"resources.{key}", text, "ask for fewer, or set RAY_ADDRESS to a cluster that has them")


def _cluster_mistakes(address: str) -> Iterator[str]:
    """Yield a mistake if nothing listens at ``RAY_ADDRESS``: Ray itself would retry for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        if port.isdigit():  # else a word of Ray's own, such as auto
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        yield (
            f"RAY_ADDRESS is {address!r} and nothing answers there ({error.strerror or error}); start Ray there, "
            "correct the address, or unset it to search on this machine alone."
        )


FROZEN = ("key", "test", "classes", "items", "by_class", "labels_only")
"""The entries of a vault's description that a split freezes."""


def check_vault(config: SearchConfig, key: str | None = None) -> dict[str, Any]:
    """Return the description of a search's vault; raise with all that prevents its test. ``key`` is a resumed one's."""
    from search.vault.held import TEST
    from search.vault.protocol import describe

    final, features, own = config.final, config.dataset.source.features(), config.trainable
    found = describe(str(final.vault), config.test_metrics)
    sentences, opened, openings = [*found["problems"]], found["opened"], found["openings"]
    if key not in (None, found["key"]):
        sentences.append(
            f"final.vault: the vault {found['key'][:12]} answers, and the search began with the vault {key:.12}; name "
            "that one, or give the search a new name."
        )
    if opened >= openings:
        sentences.append(
            f"final.vault: {opened} of {openings} openings of the vault were made; ask its owner for another."
        )
    if found["features"] != features:
        takes, has = (f"vectors of {count} numbers" if count else "images" for count in (found["features"], features))
        sentences.append(f"final.vault: its items are {takes}, and those of dataset are {has}; name another vault.")
    if found["labels_only"] and not Path(final.vault_items or "", TEST).is_file():
        sentences.append(
            "final.vault_items: the vault hands out its test items without labels and takes embeddings of them; give "
            f"the folder with these items, not {final.vault_items!r}."
        )
    if not found["labels_only"] and final.vault_items is not None:
        sentences.append("final.vault_items: the vault keeps its test items secret; set it to null.")
    elif not found["labels_only"] and own is not None:
        sentences.append(
            f"final.vault: {own} is a user-defined training, whose code the vault does not run; ask its owner for one "
            "that hands out its items (`holdout vault make --labels-only`)."
        )
    raise_if_any(sentences)
    return found
