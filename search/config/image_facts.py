"""Facts about a data set (classes, images or features, sizes), from which a first search file is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from search.difference import FEW_CLASSES, confirms_on_halves, shown_points
from trainables.common.errors import InvalidInput, counted, ranged
from trainables.data.dataset import Dataset, similar_names
from trainables.data.sets.features import FeatureFile, is_feature_file
from trainables.data.sets.folders import Folder
from trainables.data.sets.manifest import Manifest, is_manifest
from trainables.data.split import FEWEST_CLASSES, ClassSplit, check_classes, split_dataset
from trainables.data.store.build import image_sizes
from trainables.training.training_config import RESIZE

SAMPLE = 200
"""Number of images whose size is read: only their headers, and only of classes that train or validate."""

FEWEST = 4 * FEWEST_CLASSES
"""Classes that a search needs: half of them are held out, and the others are split into training and validation."""

SEEDS = 200
"""Number of split seeds to try."""

RATIO, HALF = 0.9, 0.5
"""The default, and the ratio of a frozen network whose validation classes the default would leave too few of."""
SMALL_SIDE = 64
"""The largest images that the small network is meant for, in pixels after resizing."""
VALIDATING = 4
"""With fewer than forty training classes, this many validate where at least twice as many are left to train."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Minimum, median and maximum of ``count`` numbers."""

    least: int
    middle: int
    most: int
    count: int

    @classmethod
    def of(cls, numbers: Sequence[int]) -> "Spread":
        return cls(least=min(numbers), middle=int(median(numbers)), most=max(numbers), count=len(numbers))


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """A data set in numbers.

    ``root`` is its folder, or its file of embeddings or of paths; None if it has none. ``split_seed`` is the first one
    with a class of at least two images in each part; ``class_sizes`` are the images per training class under it,
    ``short_side`` pixels in a sample of the training half. Data that are ``features`` have no sides. ``paths`` is
    the folder of a file of paths, None if it is that of the file. ``notes`` are sentences on names and on what is left
    out.
    """

    root: str | None
    features: int | None
    classes: int
    images: int
    split_seed: int
    ratio: float
    class_sizes: Spread
    train_images: int
    validation_classes: int
    test_classes: int
    test_images: int
    short_side: Spread | None
    paths: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def train_classes(self) -> int:
        return self.class_sizes.count

    @property
    def of_photographs(self) -> bool:
        """True if the images are files too large for the small network, so that a pretrained one fits them."""
        return self.root is not None and self.short_side is not None and self.short_side.middle > SMALL_SIDE * RESIZE

    @property
    def on_half(self) -> bool:
        """True if half of the training classes validate, and the final models learn from all of them."""
        return self.ratio == HALF

    def sentences(self) -> list[str]:
        sizes, side = self.class_sizes, self.short_side
        item = "image" if self.features is None else "embedding"
        half = self.train_classes + self.validation_classes
        numbers = "" if self.features is None else f" of {counted(self.features, 'number')}"
        confirming = half if confirms_on_halves("auto", self.validation_classes) else self.validation_classes
        each = ranged(sizes.least, sizes.most, item)
        found = [
            f"{counted(self.images, item)}{numbers}, of {self.classes:,} classes; those that train have {each} each.",
            f"{counted(self.train_classes, 'class', 'classes')} train, {self.validation_classes:,} validate, "
            f"{self.test_classes:,} are held out for the test.",
            f"A choice confirmed on {confirming:,} classes shows differences of about {shown_points(confirming)}.",
        ]
        if self.on_half:
            found += [
                "Half of the training classes validate, since a tenth would be too few to choose by (split.ratio);",
                f"so the final models learn from all {half:,} (final.train_on).",
            ]
        if side is not None:
            found.append(
                f"The short side is {ranged(side.least, side.most, 'pixel')}, median {side.middle:,} (from "
                f"{counted(side.count, 'image')}, none of a test class)."
            )
        return [*found, *self.notes]


def dataset_at(path: Path, root: Path | None = None) -> Dataset:
    """Return the data set at ``path``: a file of embeddings, a CSV file, or a folder with one sub-folder per class.

    ``root`` is the folder to which the paths of a CSV file are relative, if it is not that of the file.
    """
    if not path.exists() and (is_manifest(path) or is_feature_file(path)):
        raise InvalidInput(f"There is no file {path}; correct its path.")
    if path.is_file() and is_manifest(path):
        return Manifest(file=str(path.resolve()), root=None if root is None else str(root.resolve()))
    if path.is_file() and is_feature_file(path):
        return FeatureFile(file=str(path.resolve()))
    return Folder(root=str(path.resolve()))


def dataset_facts(dataset: Dataset, *, frozen: bool | None = None) -> ImageFacts:
    """Return the facts about a data set, for a ``frozen`` network or not; by default photographs are for one.

    Raises:
        InvalidInput: it cannot be searched, with the reason.
    """
    classes = dataset.classes()
    _refuse(classes)
    split = _split(dataset, classes, frozen=bool(frozen) or dataset.features() is not None)

    def sizes(names: Sequence[str]) -> tuple[int, ...]:
        return tuple(len(classes[name]) for name in names)

    file, root = getattr(dataset, "file", None), getattr(dataset, "root", None)
    place = file or root
    facts = ImageFacts(
        root=None if place is None else str(place),
        paths=None if file is None or root is None else str(root),
        features=dataset.features(),
        classes=len(classes),
        images=sum(sizes(tuple(classes))),
        split_seed=split.seed,
        ratio=split.ratio,
        class_sizes=Spread.of(sizes(split.train)),
        train_images=sum(sizes(split.train)),
        validation_classes=len(split.validation),
        test_classes=len(split.test),
        test_images=sum(sizes(split.test)),
        notes=tuple(filter(None, [similar_names(classes), dataset.left_out()])),
        short_side=_short_side(dataset, [key for name in (*split.train, *split.validation) for key in classes[name]]),
    )
    return dataset_facts(dataset, frozen=True) if frozen is None and facts.of_photographs else facts


def _refuse(classes: Mapping[str, Sequence[str]]) -> None:
    if len(classes) < FEWEST:
        count = "is one class" if len(classes) == 1 else f"are {len(classes)} classes"
        raise InvalidInput(
            f"There {count} ({', '.join(classes)}), and a search needs at least {FEWEST}: half of the classes are "
            f"held out for the test, and of the others at least {FEWEST_CLASSES} train and as many validate. Give more "
            "classes, one sub-folder each."
        )


def _split(dataset: Dataset, classes: Mapping[str, Sequence[str]], *, frozen: bool) -> ClassSplit:
    """Return the split with the first seed that gives each part a class of two images."""
    refusal: InvalidInput | None = None
    ((train, validation),) = split_dataset(dataset, classes, ratio=RATIO, seed=0).divisions
    half = len(train) + len(validation)
    ratio = round(1 - VALIDATING / half, 2) if 3 * VALIDATING <= half < VALIDATING / (1 - RATIO) else RATIO
    if frozen and len(validation) < FEW_CLASSES:
        ratio = HALF
    for seed in range(SEEDS):
        split = split_dataset(dataset, classes, ratio=ratio, seed=seed)
        try:
            check_classes(split, dataset, classes)
            return split
        except InvalidInput as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _short_side(dataset: Dataset, keys: Sequence[str]) -> Spread | None:
    """Return the spread of the short sides of up to :data:`SAMPLE` evenly spaced images; None for features."""
    if dataset.noun != "images":
        return None
    sample = keys[:: -(-len(keys) // SAMPLE)]
    sides = [min(size) for size in image_sizes(dataset, sample)]
    if not sides:
        raise InvalidInput(f"None of {len(sample)} images can be read, such as {sample[0]}; replace or remove them.")
    return Spread.of(sides)
