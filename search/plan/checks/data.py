"""Whether the data set's classes can be split, fill batches and be scored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature

from search.config.search_config import SearchConfig
from search.plan.checks.findings import Findings
from trainables.data.batch_samplers import batch_problems
from trainables.data.merge import merged_sizes
from trainables.data.split import ClassSplit, check_images, make_split
from trainables.metrics import largest_k
from trainables.metrics.table import split_subset, superclass_metrics
from trainables.mistakes import Mistakes, raise_if_any
from trainables.parts import is_own
from trainables.training.config import TrainingConfig

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
