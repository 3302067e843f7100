"""Checks of the data set: classes, batches, splits, galleries and unreadable images."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as OutOfTime
from dataclasses import dataclass
from inspect import signature

from search.config.search_config import SearchConfig
from search.config.validation import Findings
from trainables.data import Dataset
from trainables.data.batch_samplers import batch_problems
from trainables.data.split import ClassSplit, check_images, make_split, merged_sizes
from trainables.metrics import largest_k
from trainables.metrics.table import is_retrieval, split_subset, superclass_metrics
from trainables.mistakes import Mistakes, listed, raise_if_any
from trainables.parts import is_own
from trainables.training.config import TrainingConfig

# Whether the data set's classes can be split, fill batches and be scored.

BY_LOSS = "training_by_loss"
BATCH_KEYS = ("training.sampler", "training.batch_size", "training.images_per_class", BY_LOSS)


@dataclass(frozen=True, kw_only=True)
class SplitClasses:
    """The classes of a data set with their image keys, and how they are split."""

    split: ClassSplit
    classes: Mapping[str, tuple[str, ...]]


def split_of(found: Findings, config: SearchConfig) -> SplitClasses | None:
    """The search's split; None where it cannot be made, or is not known."""
    return found.check(lambda: _split_or_mistakes(config), *_data_keys(config))


def _split_or_mistakes(config: SearchConfig) -> SplitClasses:
    try:
        return _split(config)
    except ValueError:
        raise
    except Exception as error:  # somebody's data set may raise anything
        if not is_own(config.dataset.name):
            raise
        raise Mistakes(
            f"dataset.name: {config.dataset.name} raises {type(error).__name__}: {error}; mend it."
        ) from error


def _data_keys(config: SearchConfig) -> tuple[str, ...]:
    """The keys of the search file that decide which classes there are, and how they are split."""
    options = signature(type(config.dataset.source)).parameters
    return ("dataset.name", *(f"dataset.{option}" for option in options), "split")


def _split(config: SearchConfig, further: int = 0) -> SplitClasses:
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
    return SplitClasses(split=split, classes=classes)


def check_data(found: Findings, config: SearchConfig, data: SplitClasses) -> None:
    """Images in every class, batches that can be filled, and metrics that can be computed."""
    found.check(lambda: check_images(data.split, data.classes))
    found.check(lambda: raise_if_any(list(_batch_mistakes(config, data))), *BATCH_KEYS)
    found.add(_metric_mistakes(found, config, data))


def _batch_mistakes(config: SearchConfig, data: SplitClasses) -> Iterator[str]:
    keys: dict[tuple[str, int, int], str] = {}
    for loss in config.loss_names:
        key = "training" if _batches(config.training_of(loss)) == _batches(config.training) else f"{BY_LOSS}.{loss}"
        keys.setdefault(_batches(config.training_of(loss)), key)
    for train, _ in data.split.divisions:
        sizes = merged_sizes([len(data.classes[name]) for name in train], data.split.merge)
        for (sampler, batch_size, images_per_class), key in keys.items():
            yield from (
                f"{key}: {sentence}" for sentence in batch_problems(sampler, sizes, batch_size, images_per_class)
            )


def _batches(training: TrainingConfig) -> tuple[str, int, int]:
    return training.sampler, training.batch_size, training.images_per_class


def _metric_mistakes(found: Findings, config: SearchConfig, data: SplitClasses) -> Iterator[str]:
    """Metrics that look at more images than there are, or at a grouping of classes that there is not; of a list whose
    wrong entries were left out, the others.
    """
    objective = _given(found, "search.objective", (config.search.objective,))
    during = (*_given(found, "metrics.validation", config.metrics.validation), *objective)
    test = () if isinstance(config.metrics.test, str) else _given(found, "metrics.test", config.metrics.test)
    dataset, source = config.dataset.name, config.dataset.source
    if of_subset := [name for name in dict.fromkeys(during) if split_subset(name)[1]]:
        yield (
            f"metrics: {', '.join(of_subset)} is of a part of the test classes, and the validation has none of them; "
            "name such metrics in metrics.test alone."
        )
    subsets = source.test_subsets()
    if unknown := [name for name in test if split_subset(name)[1] not in (None, *subsets)]:
        yield (
            f"metrics.test: {', '.join(unknown)} is of a part of the test classes that {dataset} does not name; it "
            f"names {', '.join(subsets) or 'none'}."
        )
    named = superclass_metrics(list(dict.fromkeys((*during, *test))))
    if named and source.superclasses() is None:
        yield (
            f"metrics: {', '.join(named)} need a data set that groups its classes into superclasses, as sop does, and "
            f"{dataset} does not; name nmi or f1, which are of the classes."
        )
    scored = [("validation", validation, during) for _, validation in data.split.divisions]
    if not isinstance(config.metrics.test, str):
        scored.append(("test", data.split.test, (*_of_subset(test, None), *objective)))
        scored += [(f"{subset} test", names, _of_subset(test, subset)) for subset, names in subsets.items()]
    for part, names, metrics in scored:
        images = sum(len(data.classes[name]) for name in names)
        if (k := largest_k(metrics)) >= images:
            yield (
                f"metrics: k = {k} needs more than {k} images and the {len(names)} {part} classes have {images}; "
                "name a smaller k."
            )


def _of_subset(names: Sequence[str], subset: str | None) -> tuple[str, ...]:
    """Those of the metrics ``names`` that are of a part of the test classes, or of all of them."""
    return tuple(name for name in names if split_subset(name)[1] == subset)


def _given(found: Findings, key: str, names: Sequence[str]) -> Sequence[str]:
    return () if found.left_out.replaced(key) else names


SIZE_KEYS = ("dataset.store_size", "training.image_size", "training.resize_size")


def check_sizes(found: Findings, config: SearchConfig) -> None:
    """Images are stored as large as the training needs them."""
    found.check(lambda: raise_if_any(_size_mistakes(config)), *SIZE_KEYS)


def _size_mistakes(config: SearchConfig) -> list[str]:
    stored, needed = config.dataset.store_size, config.training.frame.short_side
    if stored >= needed:
        return []
    return [
        f"dataset.store_size is {stored} and the training resizes images to {needed}: they would be made smaller and "
        f"then larger again; set dataset.store_size to {needed} or more."
    ]


def check_further_splits(found: Findings, config: SearchConfig) -> tuple[ClassSplit, ...]:
    """Further class splits of the same training half, for the noise stage and for confirmations."""
    keys = (*_data_keys(config), *BATCH_KEYS, "noise.splits", "selection.splits")
    return found.check(lambda: _further_splits(found, config), *keys) or ()


def _further_splits(found: Findings, config: SearchConfig) -> tuple[ClassSplit, ...]:
    of_noise, of_selection = config.noise.splits, config.selection.splits - 1
    if of_selection and config.split.folds:
        raise Mistakes(
            f"selection.splits is {config.selection.splits} and split.folds {config.split.folds}; in folds every "
            "training class validates already, so set selection.splits to 1, or split.folds to null."
        )
    splits = []
    of_splits = Findings(found.sentences, found.left_out)
    for further in range(1, max(of_noise, of_selection) + 1):
        if data := of_splits.check(lambda further=further: _split(config, further)):  # type: ignore[misc]
            check_data(of_splits, config, data)
            splits.append(data.split)
    # What is wrong with the search's own split is wrong here too, and said once.
    key = "noise.splits" if of_noise >= of_selection else "selection.splits"
    raise_if_any([f"{key}: {sentence}" for sentence in of_splits.sentences if sentence not in found.sentences])
    return tuple(splits)


# Unreadable images, looked for in a bounded time.

LOOK_S = 5
DRAWN = "glyphs"
"""A data set that is drawn and not read."""


def check_images_readable(found: Findings, config: SearchConfig, data: SplitClasses) -> None:
    """The training half's images can be read, as far as there is time to look.

    Decoding finds the same when the search begins. This is for a search that cannot begin yet, so that its user
    mends everything at once. Images of test classes are not opened.
    """
    if config.dataset.name != DRAWN:
        half = (*data.split.train, *data.split.validation)
        keys = [key for name in half for key in data.classes[name]]
        found.add(unreadable_images(config.dataset.source, keys, seconds=LOOK_S))


def unreadable_images(dataset: Dataset, keys: Sequence[str], *, seconds: float) -> list[str]:
    """The sentence on those of the images ``keys`` that cannot be read, among those read within ``seconds``."""
    end = time.monotonic() + seconds
    looked = 0
    unreadable: list[str] = []
    pool = ThreadPoolExecutor(os.cpu_count() or 1)  # Pillow decodes without holding the interpreter
    try:
        jobs: list[Future[None]] = [pool.submit(_read, dataset, key) for key in keys]
        for key, job in zip(keys, jobs, strict=True):
            try:
                job.result(timeout=max(0.0, end - time.monotonic()))
            except OutOfTime:
                if not job.done():
                    break
                unreadable.append(f"{key} (timed out)")
            except Exception as error:  # image decoders raise anything
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                unreadable.append(f"{key} ({reason})")
            looked += 1
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if not unreadable:
        return []
    of = f"{looked}" if looked == len(keys) else f"the first {looked} of {len(keys)}"
    return [f"{len(unreadable)} of {of} images cannot be read: {listed(unreadable, '; ')}. Replace or remove them."]


def _read(dataset: Dataset, key: str) -> None:
    dataset.read(key)  # without what it gives: a thousand images would fill the memory


# Whether the objective can be measured in the validation's gallery.


def check_gallery(found: Findings, config: SearchConfig) -> None:
    """Only a metric of rankings knows queries that are ranked among further images."""
    found.check(lambda: raise_if_any(_gallery_mistakes(config)), "metrics.gallery", "search.objective")


def _gallery_mistakes(config: SearchConfig) -> list[str]:
    objective, gallery = config.search.objective, config.metrics.gallery
    if gallery == "validation" or is_retrieval(objective):
        return []
    return [
        f"metrics.gallery is {gallery} and search.objective {objective}, which ranks no images for a query, so that "
        "the training images could have no part in it; name a metric of rankings such as map_at_r, or set "
        "metrics.gallery to validation."
    ]
