"""Checks of the data set: its split, classes, batches, metrics and images."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature

from search.config.search_config import SearchConfig, changed_keys
from search.config.sections import DatasetSection
from search.config.validation import Findings
from search.difference import confirms_on_halves
from search.driver.part_checks import Notice, of_trainings
from search.records.plan import BY_LOSS
from spaces.space import MODEL
from trainables.common.errors import InvalidInput, Mistake, counted
from trainables.common.part_tables import is_own
from trainables.common.process import contained
from trainables.data.batch_samplers import batch_problems, fitting_batch, lacks
from trainables.data.dataset import QUERY
from trainables.data.split import ClassSplit, check_classes, learned_sizes, split_dataset
from trainables.losses import loss_row
from trainables.metrics import is_retrieval, largest_k, split_subset, superclass_metrics
from trainables.models import ModelConfig
from trainables.models.backbones import FEATURES, on_features
from trainables.training.training_config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class SplitClasses:
    """The classes of a data set with their image keys, and their split."""

    split: ClassSplit
    classes: Mapping[str, tuple[str, ...]]


def split_of(found: Findings, config: SearchConfig) -> SplitClasses | None:
    """Return the search's split; None if it cannot be made, or depends on an entry that was left out."""
    options = signature(type(config.dataset.source)).parameters
    keys = ("dataset.name", *(f"dataset.{option}" for option in options), "split")
    return found.check(lambda: _split(config), *keys)


def _split(config: SearchConfig) -> SplitClasses:
    dataset = config.dataset.source
    try:
        with contained():
            classes = dataset.classes()
            options = config.split.model_dump(exclude={"allow_overlap"})
            split = split_dataset(dataset, classes, held=config.final.vault is not None, **options)
            if is_own(config.dataset.name):  # what raises later would end the search
                _ = dataset.features(), dataset.left_out()
                _ = [dataset.stamp(key) for key in classes[split.train[0]][:1]]
    except InvalidInput:
        raise
    except Exception as error:  # a user-defined data set may raise anything
        if not is_own(config.dataset.name):
            raise
        raise InvalidInput(
            f"dataset.name: {config.dataset.name} raises {type(error).__name__}: {error}; fix its code."
        ) from error
    return SplitClasses(split=split, classes=classes)


def check_split(found: Findings, config: SearchConfig, data: SplitClasses) -> None:
    """Check that every class has images, that batches can be filled, and that metrics can be computed."""
    found.check(lambda: check_classes(data.split, config.dataset.source, data.classes))
    if config.selection.on == "halves" and not data.split.halves:
        count = len({*data.split.train, *data.split.validation})
        classes = counted(count, "training class", "training classes")
        text = f"is halves, and {classes} cannot be divided into halves of two classes or more that share no groups"
        found.add([Mistake("selection.on", text, "set it to split")])
    found.add(_batch_mistakes(config, data))
    found.add(_metric_mistakes(found, config, data))


def with_fitting_batch(config: SearchConfig, data: SplitClasses) -> tuple[SearchConfig, Notice | None]:
    """Return ``config`` with the largest batch, at most its own, that its samplers can fill, and a notice on that."""
    of_losses, most = config.training_by_loss, config.training.batch_size
    shared = [config.training_of(loss) for loss in config.loss_names if "batch_size" not in of_losses.get(loss, {})]
    each = [learned_sizes(data.split, data.classes, train) for train, _ in data.split.divisions]
    rules = {(sizes, *_batches(training)) for training in shared for sizes in map(tuple, each)}

    def fills(size: int) -> bool:
        return not any(batch_problems(name, sizes, size, of_class) for sizes, name, _, of_class in rules)

    size = next(filter(fills, range(most, 0, -1)), most)  # what cannot fill any is refused next
    if config.trainable is not None or size == most:
        return config, None
    text = f": {size}, the largest batch that {min(map(len, each))} training classes fill"
    return with_batch_size(config, size), Notice("training.batch_size", f"{text} (not given; by default {most})")


def with_batch_size(config: SearchConfig, size: int) -> SearchConfig:
    return config.model_copy(update={"training": replace(config.training, batch_size=size)})


def _batch_mistakes(config: SearchConfig, data: SplitClasses) -> Iterator[Mistake]:
    if config.trainable is not None:  # it makes its own batches
        return
    keys: dict[tuple[str, int, int], str] = {}
    for loss in config.loss_names:
        key = "training" if _batches(config.training_of(loss)) == _batches(config.training) else f"{BY_LOSS}.{loss}"
        keys.setdefault(_batches(config.training_of(loss)), key)
    fitting, settings = dict(keys), of_trainings(config, "sampler", "batch_size", "images_per_class")
    for train, _ in data.split.divisions:
        sizes = learned_sizes(data.split, data.classes, train)
        for batches, key in keys.items():
            if problems := batch_problems(batches[0], sizes, *batches[1:]):
                fitting.pop(batches, None)
                yield from (Mistake.of(sentence).at(key, settings) for sentence in problems)
            elif (missing := lacks(batches[0], sizes, *batches[1:])) and (names := _comparing(config, batches)):
                fitting.pop(batches, None)
                verb = "compares" if len(names) == 1 else "compare"
                text = f": no batch holds {missing}, which {', '.join(names)} {verb}, so nothing would be learned"
                yield Mistake(key, text, "change batch_size or images_per_class", settings)
    on_halves = confirms_on_halves(config.selection.on, data.split.validating)
    for half in data.split.halves if on_halves else ():
        sizes = learned_sizes(data.split, data.classes, half)
        for (sampler, batch_size, images_per_class), key in fitting.items():
            if fitting_batch(sampler, sizes, batch_size, images_per_class) is None:
                batch = f": {sampler} can fill no batch of at most {batch_size}"
                text = f"{batch} from {len(half)} classes, a half of the training classes"
                yield Mistake(key, text, "set selection.on to split", (*settings, "selection.on"))


def _comparing(config: SearchConfig, batches: tuple[str, int, int]) -> list[str]:
    """Return the built-in losses with these batches that compare the images of a batch with each other alone."""
    built_in = [loss.name for loss in config.losses if loss.path is None and loss_row(loss.name).proxy_lr is None]
    return [name for name in built_in if _batches(config.training_of(name)) == batches]


def _batches(training: TrainingConfig) -> tuple[str, int, int]:
    return training.sampler, training.batch_size, training.images_per_class


def _metric_mistakes(found: Findings, config: SearchConfig, data: SplitClasses) -> Iterator[str]:
    """Yield the metrics that need more images, or other groups of classes, than the data set has."""
    # a list that was left out was replaced by a default, which is not the user's mistake
    objective = () if found.replaced("search.objective") else (config.search.objective,)
    during = (*(() if found.replaced("metrics.validation") else config.metrics.validation), *objective)
    is_named = not (isinstance(config.metrics.test, str) or found.replaced("metrics.test"))
    test: Sequence[str] = config.metrics.test if is_named else ()
    dataset, source = config.dataset.name, config.dataset.source
    if of_subset := [name for name in dict.fromkeys(during) if split_subset(name)[1]]:
        yield (
            f"metrics: {', '.join(of_subset)} is computed on a part of the test classes, which the validation does not "
            "have; name such metrics in metrics.test only."
        )
    subsets, parts = source.test_subsets(), source.parts()
    if config.final.vault is not None:  # which says itself what it does not compute
        test, subsets = (), {}
    if unknown := [name for name in test if split_subset(name)[1] not in (None, *subsets)]:
        yield (
            f"metrics.test: {', '.join(unknown)} is computed on a part of the test classes that {dataset} does not "
            f"have; it has {', '.join(subsets) or 'none'}."
        )
    named = superclass_metrics(list(dict.fromkeys((*during, *test))))
    if named and source.superclasses() is None:
        yield (
            f"metrics: {', '.join(named)} need a data set that groups its classes into superclasses, as sop does, and "
            f"{dataset} does not; name nmi or f1, which use the classes themselves."
        )
    scored = [("validation", validation, during) for _, validation in data.split.divisions]
    if not isinstance(config.metrics.test, str) and config.final.vault is None:
        of = {part: tuple(name for name in test if split_subset(name)[1] == part) for part in (None, *subsets)}
        scored.append(("test", data.split.test, (*of[None], *objective)))
        scored += [(f"{subset} test", names, of[subset]) for subset, names in subsets.items()]
    for part, names, metrics in scored:
        found_in = Counter(parts.get(key) for name in names for key in data.classes[name])
        gallery, k = found_in.total() - (found_in[QUERY] or 1), largest_k(metrics)
        if k > gallery:
            yield (
                f"metrics: k = {k} needs a gallery of {k} {source.noun} and that of the {len(names)} {part} classes "
                f"has {gallery}; name a smaller k."
            )


def check_sizes_and_gallery(found: Findings, config: SearchConfig) -> None:
    """Check that images are stored as large as trainings need, and that an objective can use a training gallery."""
    stored, needed = config.dataset.store_size, config.training.frame.short_side
    if stored < needed and config.trainable is None:
        text = f"is {stored} and the training resizes images to {needed}: they would be shrunk and then enlarged again"
        keys = ("dataset.store_size", "training.image_size", "training.resize_size", "trainable")
        found.add([Mistake("dataset.store_size", text, f"set dataset.store_size to {needed} or more", keys)])
    objective, gallery = config.search.objective, config.metrics.gallery
    if gallery != "validation" and not is_retrieval(objective):
        why = "which ranks no items for a query and so cannot use the training items"
        fix = "name a ranking metric such as map_at_r, or set metrics.gallery to validation"
        text = f"is {gallery} and search.objective {objective}, {why}"
        found.add([Mistake("metrics.gallery", text, fix, ("metrics.gallery", "search.objective"))])


OF_IMAGES = (
    "dataset.store_size", "model.weights", "model.pooling", "model.freeze", "model.freeze_bn", "training.image_size",
    "training.resize_size", "training.resize_square", "training.augment",
)  # fmt: skip
"""The settings that have no meaning for data that are features."""


def check_features(found: Findings, config: SearchConfig) -> None:
    """Check that the network's input is what the data are, images or features, and that no setting is of the other."""
    features, backbone = config.dataset.source.features(), config.model.backbone
    if features is None and on_features(backbone):
        text = f"is {backbone}, and the data set {config.dataset.name} has images"
        found.add([Mistake("model.backbone", text, "name a network (`holdout backbones`)")])
    if features is None:
        return
    if backbone != f"{FEATURES}:{features}":
        text = f"is {backbone}, and the data are {features} features, not images"
        found.add([Mistake("model.backbone", text, f"leave it out, or set it to {FEATURES}:{features}")])
    defaults = {"dataset": DatasetSection(name="glyphs"), "model": ModelConfig(), "training": TrainingConfig()}
    changed = [key for name, of in defaults.items() for key in changed_keys(name, getattr(config, name), of)]
    wrong = [key for key in OF_IMAGES if key in changed]
    sections = {"space": config.space, **{f"space.{name}": of for name, of in config.space.items()}}
    for written, wishes in sections.items():
        if isinstance(asked := wishes.get(MODEL), dict):
            wrong += [f"{written}.{MODEL}.{key}" for key in asked if f"{MODEL}.{key}" in OF_IMAGES]
    if wrong:
        text = ": settings for images, and the data are features"
        found.add([Mistake(", ".join(wrong), text, "remove them", wrong)])
