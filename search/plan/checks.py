"""What is wrong with a search beyond its file's form: its data, its batches, its spaces, its machines, its addresses.

Nothing is created here. Every check returns sentences; all of them are collected.
"""

import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import sqlalchemy
import torch

from search.config.search_config import SearchConfig
from search.config.secrets import expand, without_password
from search.config.validation_errors import suggestion
from search.plan.plan import Plan, search_budget
from search.plan.runs import RunFolder
from search.tracking.client import login_refusal
from spaces.search_space import SearchSpace, search_space
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.merge import merged_sizes
from trainables.data.split import ClassSplit, check_images, make_split
from trainables.files import as_path
from trainables.metrics import largest_k
from trainables.mistakes import Mistakes, raise_if_any
from trainables.models.smoke_test import smoke_test

TRACKING_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql")
STORAGE_SCHEMES = ("sqlite", "postgresql", "mysql")
PATIENCE_S = 10


def make_plan(config: SearchConfig, runs: Path, *, addresses: bool = True) -> Plan:
    """The plan of a search.

    Args:
        config: the search file.
        runs: the runs folder; nothing in it is touched.
        addresses: whether to ask the storage and the tracking server too. A search that goes on does not: its
            studies outlive an outage of MLflow.

    Raises:
        Mistakes: all that is wrong.
    """
    mistakes: list[str] = []
    split, classes = _collect(mistakes, lambda: _split(config)) or (None, {})
    if split is not None:
        mistakes += _data_mistakes(config, split, classes)
    noise_splits = _collect(mistakes, lambda: _noise_splits(config)) or ()
    spaces = _collect(mistakes, lambda: spaces_of(config))
    mistakes += _noise_mistakes(config, spaces or {})
    _collect(mistakes, lambda: smoke_test(config.model, config.training.image_size))
    mistakes += _frame_mistakes(config)
    mistakes += _machine_mistakes(config)
    if addresses:
        mistakes += _address_mistakes(config, runs)
    raise_if_any(mistakes)
    assert split is not None
    assert spaces is not None
    return Plan(
        config=config, folder=RunFolder(runs, config.name), split=split, spaces=spaces, noise_splits=noise_splits
    )


def _collect(mistakes: list[str], check: Callable[[], Any]) -> Any:
    try:
        return check()
    except Mistakes as error:
        mistakes += error.sentences
        return None


def _split(config: SearchConfig, further: int = 0) -> tuple[ClassSplit, Mapping[str, tuple[str, ...]]]:
    dataset = config.dataset.source
    classes = dataset.classes()
    split = make_split(
        dataset.identity(),
        list(classes),
        dataset.published_split(),
        ratio=config.split.ratio,
        seed=config.split.seed + further,
        folds=config.split.folds,
        merge=config.split.merge,
    )
    return split, classes


def _noise_splits(config: SearchConfig) -> tuple[ClassSplit, ...]:
    """Further class splits of the same training half, for the noise stage."""
    splits = []
    mistakes: list[str] = []
    for further in range(1, config.noise.splits + 1):
        split, classes = _split(config, further)
        mistakes += _data_mistakes(config, split, classes)
        splits.append(split)
    raise_if_any([f"noise.splits: {sentence}" for sentence in dict.fromkeys(mistakes)])
    return tuple(splits)


def _noise_mistakes(config: SearchConfig, spaces: Mapping[str, SearchSpace]) -> list[str]:
    loss, given = config.noise_loss, config.noise.configuration
    if loss not in config.loss_names:
        return [
            f"noise.loss is {loss!r}, none of the search's losses ({', '.join(config.loss_names)}); name one of them, or "
            "null for the first."
        ]
    if given == "default" or loss not in spaces:
        return []
    space = spaces[loss]
    beside = space.complete(given)
    return [
        f"noise.configuration.{name}: {loss} has no value {value!r} there in this search; there are "
        f"{', '.join(beside)}, with the ranges of the space."
        for name, value in given.items()
        if name not in beside or not space.parameters[name].contains(value)
    ]


def _data_mistakes(config: SearchConfig, split: ClassSplit, classes: Mapping[str, tuple[str, ...]]) -> list[str]:
    mistakes: list[str] = []
    _collect(mistakes, lambda: check_images(split, classes))
    training = config.training
    sampler = BATCH_SAMPLERS[training.sampler]
    parts = []
    for train, validation in split.divisions:
        sizes = merged_sizes([len(classes[name]) for name in train], split.merge)
        problems = sampler.problems(sizes, training.batch_size, training.images_per_class)
        mistakes += [f"training: {sentence}" for sentence in problems]
        parts.append(("validation", validation, (*config.metrics.validation, config.search.objective)))
    if not isinstance(config.test_metrics, str):
        parts.append(("test", split.test, config.test_metrics))
    for part, names, metrics in parts:
        images = sum(len(classes[name]) for name in names)
        if (k := largest_k(metrics)) >= images:
            mistakes.append(
                f"metrics: k = {k} needs more than {k} images and the {len(names)} {part} classes have {images}; "
                "name a smaller k."
            )
    return list(dict.fromkeys(mistakes))  # folds have the same ones


def _frame_mistakes(config: SearchConfig) -> list[str]:
    stored, needed = config.dataset.store_size, config.training.frame.short_side
    if stored >= needed:
        return []
    return [
        f"dataset.store_size is {stored} and the training resizes images to {needed}: they would be made smaller and "
        f"then larger again; set dataset.store_size to {needed} or more."
    ]


def spaces_of(config: SearchConfig) -> dict[str, SearchSpace]:
    """Every loss's space, as the search file narrows it.

    Raises:
        Mistakes: all that is wrong with them.
    """
    mistakes = [
        f"space.{name}: this is none of the search's losses ({', '.join(config.loss_names)})"
        f"{suggestion(name, [*config.loss_names, 'training'])}; add it to losses or remove it."
        for name in config.space
        if name not in (*config.loss_names, "training")
    ]
    spaces = {}
    for_training = config.space.get("training", {})
    for loss in config.loss_names:
        of_loss = partial(search_space, loss, config.training, config.space.get(loss, {}), for_training)
        spaces[loss] = space = _collect(mistakes, of_loss)
        if space is not None:
            mistakes += search_budget(config, loss, space).problems()
    raise_if_any(list(dict.fromkeys(mistakes)))  # the training's part is the same for every loss
    return spaces


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


def _machine_mistakes(config: SearchConfig) -> list[str]:
    if address := os.environ.get("RAY_ADDRESS"):
        return _cluster_mistakes(address)  # what it has is asked when it is connected to, before anything is created
    here = {"cpus_per_trial": os.cpu_count() or 1, "gpus_per_trial": torch.cuda.device_count()}
    return [
        f"resources.{key} is {wanted:g} and this machine has {there} {key[:3].upper()}s; ask for fewer, or set "
        "RAY_ADDRESS to a cluster that has them."
        for key, there in here.items()
        if (wanted := getattr(config.resources, key)) > there
    ]


def _address_mistakes(config: SearchConfig, runs: Path) -> list[str]:
    mistakes: list[str] = []
    if config.search.storage:
        _collect(mistakes, lambda: _check_database("search.storage", config.search.storage or "", STORAGE_SCHEMES))
    if config.tracking.uri:
        _collect(mistakes, lambda: _check_tracking(config.tracking.uri or ""))
    if config.checkpoints.storage_path:
        _collect(mistakes, lambda: _check_store(config.checkpoints.storage_path or ""))
    parent = next(path for path in (runs, *runs.resolve().parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        mistakes.append(f"--runs: {parent} cannot be written to; name a folder of your own.")
    return mistakes


def _check_store(address: str) -> None:
    try:
        as_path(address).exists()
    except Exception as error:  # every store's library has its own
        raise Mistakes(
            f"checkpoints.storage_path: {address} cannot be looked at ({type(error).__name__}: {error}); install its library, "
            "see that this machine may use it, or mend the address."
        ) from error


def _check_database(key: str, address: str, schemes: tuple[str, ...]) -> None:
    url = expand(address)
    scheme = urlsplit(url).scheme.partition("+")[0]
    if scheme not in schemes:
        raise Mistakes(f"{key} must begin with one of {', '.join(f'{name}:' for name in schemes)}; it is {address!r}.")
    if scheme == "sqlite":
        folder = Path(url.partition(":///")[2]).parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise Mistakes(f"{key}: the folder {folder} does not exist or cannot be written to; make it first.")
        return
    try:
        with sqlalchemy.create_engine(url, connect_args={"connect_timeout": PATIENCE_S}).connect():
            pass
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise Mistakes(
            f"{key}: {without_password(address)} does not answer ({reason}); start the database or mend the address."
        ) from error


def _check_tracking(address: str) -> None:
    if urlsplit(address).scheme not in ("http", "https"):
        _check_database("tracking.uri", address, TRACKING_SCHEMES)
        return
    shown = without_password(address)
    parts = urlsplit(expand(address))
    health = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/health")
    try:
        with urlopen(health.geturl(), timeout=PATIENCE_S):
            pass
    except (OSError, ValueError) as error:
        raise Mistakes(
            f"tracking.uri: no MLflow server answers at {shown} ({error}); start it or mend the address."
        ) from error
    if refusal := login_refusal(parts.geturl()):
        raise Mistakes(
            f"tracking.uri: the MLflow server at {shown} does not let this user in ({refusal}); put user and password "
            "into ~/.mlflow/credentials, or into MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."
        )
