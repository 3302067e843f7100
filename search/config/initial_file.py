"""A first, commented search file, and the facts about the images or embeddings that it is written from."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from search.config.keys import commented, commented_out
from search.config.search_config import SearchConfig
from search.difference import FEW_CLASSES, confirms_on_halves, shown_points
from trainables.common.errors import InvalidInput, counted, ranged
from trainables.common.files import absolute, write_text
from trainables.common.process import allotted_cpus
from trainables.data.dataset import Dataset, similar_names
from trainables.data.sets.features import FeatureFile, is_feature_file
from trainables.data.sets.folders import Folder
from trainables.data.sets.manifest import Manifest, is_manifest
from trainables.data.split import FEWEST_CLASSES, ClassSplit, check_classes, split_dataset
from trainables.data.store.build import image_sizes
from trainables.metrics import KS
from trainables.models.backbones import FEATURES, backbone
from trainables.models.config import BACKBONE, IMAGENET, ModelConfig
from trainables.models.weights import weights_path
from trainables.training.training_config import RESIZE, TrainingConfig

# The facts about a data set: its classes, and its images or features.

SAMPLE = 200
"""Number of images of the training half whose size is read, from their headers alone."""
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
    """The minimum, median and maximum of ``count`` numbers."""

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

    ``root`` is its folder, or its file of embeddings or of paths, and ``paths`` the folder of a file of paths if it is
    another one. ``split_seed`` is the first with a class of two images in each part, ``class_sizes`` the images per
    training class under it, ``short_side`` the pixels in a sample of the training half; ``features`` have none.
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
        half = sizes.count + self.validation_classes
        numbers = "" if self.features is None else f" of {counted(self.features, 'number')}"
        confirming = half if confirms_on_halves("auto", self.validation_classes) else self.validation_classes
        each = ranged(sizes.least, sizes.most, item)
        found = [
            f"{counted(self.images, item)}{numbers}, of {self.classes:,} classes; those that train have {each} each.",
            f"{counted(sizes.count, 'class', 'classes')} train, {self.validation_classes:,} validate, "
            f"{self.test_classes:,} are held out for the test.",
            f"A choice confirmed on {confirming:,} classes shows differences of about {shown_points(confirming)}.",
        ]
        if self.on_half:
            found += [
                "Half of the training classes validate, since a tenth would be too few to choose by (split.ratio);",
                f"so the final models learn from all {half:,} (final.train_on).",
            ]
        if side is not None:
            of = f"{counted(side.count, 'image')}, none of a test class"
            found.append(
                f"The short side is {ranged(side.least, side.most, 'pixel')}, median {side.middle:,} (from {of})."
            )
        return [*found, *self.notes]


def dataset_at(path: Path, root: Path | None = None) -> Dataset:
    """Return the data set at ``path``: a file of embeddings, a folder of classes, or a CSV file of paths."""
    if not path.exists() and (is_manifest(path) or is_feature_file(path)):
        raise InvalidInput(f"There is no file {path}; correct its path.")
    if path.is_file() and is_manifest(path):
        return Manifest(file=str(path.resolve()), root=None if root is None else str(root.resolve()))
    if path.is_file() and is_feature_file(path):
        return FeatureFile(file=str(path.resolve()))
    return Folder(root=str(path.resolve()))


def dataset_facts(dataset: Dataset, *, frozen: bool | None = None) -> ImageFacts:
    """Return the facts about a data set, for a ``frozen`` network or not (None: for photographs); or raise."""
    classes = dataset.classes()
    if len(classes) < (fewest := 4 * FEWEST_CLASSES):
        count = "is one class" if len(classes) == 1 else f"are {len(classes)} classes"
        raise InvalidInput(
            f"There {count} ({', '.join(classes)}), and a search needs at least {fewest}: half of the classes are "
            f"held out for the test, and of the others at least {FEWEST_CLASSES} train and as many validate. Give more "
            "classes, one sub-folder each."
        )
    split = _split(dataset, classes, frozen=bool(frozen) or dataset.features() is not None)
    sizes = {name: len(keys) for name, keys in classes.items()}
    trained = [sizes[name] for name in split.train]
    file, root = getattr(dataset, "file", None), getattr(dataset, "root", None)
    place = file or root
    facts = ImageFacts(
        root=None if place is None else str(place),
        paths=None if file is None or root is None else str(root),
        features=dataset.features(),
        classes=len(classes),
        images=sum(sizes.values()),
        split_seed=split.seed,
        ratio=split.ratio,
        class_sizes=Spread.of(trained),
        train_images=sum(trained),
        validation_classes=len(split.validation),
        test_classes=len(split.test),
        test_images=sum(sizes[name] for name in split.test),
        notes=tuple(filter(None, [similar_names(classes), dataset.left_out()])),
        short_side=_short_side(dataset, [key for name in (*split.train, *split.validation) for key in classes[name]]),
    )
    return dataset_facts(dataset, frozen=True) if frozen is None and facts.of_photographs else facts


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
    assert refusal is not None, "every seed was refused"
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


# The search file.

SMALLEST_SIDE, MIDDLE_SIDE, LARGE_SIDE = 16, 112, 224
"""In pixels: the minimum of the small network, the size of ImageNet's networks, and half of it for a CPU."""

BATCH, IMAGES_PER_CLASS = 120, 5
BATCHES_AN_EPOCH = 4
"""Fewer would be few steps between two validations; a small data set gets a smaller batch instead."""
GENERAL_NAMES = ("images", "image", "img", "data", "train")
"""Folder names that do not describe a data set; the parent's name is used instead."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """CPUs and GPUs to train on."""

    cpus: int
    gpus: int

    @property
    def sentence(self) -> str:
        cpus, gpus = self.cpus, self.gpus
        return f"This machine has {cpus} CPU core{'s' * (cpus > 1)} and {gpus or 'no'} GPU{'s' * (gpus > 1)}."


def this_machine() -> Machine:
    import torch

    return Machine(cpus=allotted_cpus(), gpus=torch.cuda.device_count())


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A pretrained network: the ``backbone``, and its ``weights``, ``imagenet`` or the path of a file."""

    backbone: str
    weights: str

    @property
    def is_missing(self) -> bool:
        """True if the published weights are not on this machine; raises if the network or its library is missing."""
        published = backbone(self.backbone).imagenet
        return self.weights == IMAGENET and published is not None and not weights_path(published).is_file()

    def fitted(self, image_size: int, dataset: Dataset, facts: ImageFacts) -> "tuple[Pretrained, str]":
        """Build the network with these weights and embed an image; return it, and a sentence on what it loads.

        If the weights fit variants of it too, the one with the highest untrained score on training images is returned.
        """
        from trainables.models.embedding import smoke_test
        from trainables.training.untrained_network import scores_of_variants, shown_variants

        model = ModelConfig(backbone=self.backbone, weights=self.weights)
        loaded = smoke_test(model, image_size)
        assert loaded is not None, "there are weights"
        if not loaded.by_order:
            return self, f"{self.backbone}: {loaded}."
        classes, frame = dataset.classes(), TrainingConfig(image_size=image_size).frame
        split = split_dataset(dataset, classes, ratio=facts.ratio, seed=facts.split_seed)
        of_training = tuple(tuple(classes[name]) for name in split.train)
        scores = scores_of_variants(model, frame, dataset, frame.short_side, of_training)
        best = max(scores, key=scores.__getitem__, default=self.backbone)
        return replace(self, backbone=best), f"{best}: {loaded}; {shown_variants(scores)}."


def pretrained(name: str | None, weights: str | None) -> Pretrained | None:
    """Return the network that a user names, with ImageNet's weights if there are no others; None for the small one."""
    if weights is None and name in (None, ModelConfig().backbone):
        return None
    if name is None:
        raise InvalidInput(
            f"--weights is {weights}, and --backbone is missing: name the network that the weights belong to, such as "
            "--backbone resnet50; `holdout backbones` lists others."
        )
    weights = IMAGENET if weights is None else weights
    return Pretrained(backbone=name, weights=weights if weights == IMAGENET else absolute(weights))


COMMON = Pretrained(backbone="resnet50", weights=IMAGENET)
"""The network of photographs unless the user names one."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers of a search file that depend on images and machine; if ``frozen``, a layer on features is trained."""

    backbone: str
    weights: str | None
    frozen: bool = False
    embedding_dim: int
    image_size: int | None
    images_per_class: int
    batch_size: int
    epochs: int
    gpus_per_trial: float


def sizes_for(facts: ImageFacts, machine: Machine, network: Pretrained | None = None) -> Sizes:
    """Choose sizes that fit the images and the machine, and that the batch sampler can fill; ``network`` is frozen."""
    images_per_class = max(2, min(IMAGES_PER_CLASS, facts.class_sizes.middle))
    most = min(BATCH // images_per_class, facts.class_sizes.count)
    batch_size = images_per_class * max(2, min(most, facts.train_images // (BATCHES_AN_EPOCH * images_per_class)))
    steps = max(facts.train_images // batch_size, 1)
    sizes = Sizes(
        backbone="convnet",
        weights=None,
        embedding_dim=64,
        image_size=None,
        images_per_class=images_per_class,
        batch_size=batch_size,
        epochs=min(max(math.ceil(200 / steps), 8), 30),
        gpus_per_trial=0.25 if machine.gpus else 0,  # the small network leaves room for other trials
    )
    if facts.features is not None:
        return replace(
            sizes, backbone=f"{FEATURES}:{facts.features}", embedding_dim=min(facts.features, 512),
            epochs=min(max(math.ceil(340 / steps), 5), 20), gpus_per_trial=0,
        )  # fmt: skip
    assert facts.short_side is not None, "images have sides"
    most = SMALL_SIDE if network is None else LARGE_SIDE if machine.gpus else MIDDLE_SIDE
    side = max(SMALLEST_SIDE, min(most, int(facts.short_side.middle / RESIZE)))  # of a crop without enlarging
    if network is None:
        return replace(sizes, image_size=side)
    return replace(
        sizes, backbone=network.backbone, weights=network.weights, frozen=True, embedding_dim=512, epochs=20,
        image_size=side,
    )  # fmt: skip


def name_for(root: str | None) -> str:
    """Return a name for the search of the images in ``root``."""
    if root is None:
        return "glyphs"
    path = Path(root)
    if is_feature_file(path) or is_manifest(path):
        path = path.with_suffix("")
    while path.name.lower() in GENERAL_NAMES and path.parent != path:
        path = path.parent
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("-._")[:100] or "search"


def initial_text(facts: ImageFacts, machine: Machine, network: Pretrained | None = None) -> str:
    """Return the search file for these images on this machine, with a comment on every key."""
    sizes = sizes_for(facts, machine, network)
    ks = [k for k in KS if k < facts.test_images]  # a very small test set has fewer neighbours
    content: dict[str, Any] = {
        "name": name_for(facts.root),
        "dataset": _dataset(facts),
        "split": {"ratio": facts.ratio},
        "model": {"head": "linear"},
        "training": {
            "epochs": sizes.epochs,
            "batch_size": sizes.batch_size,
            "images_per_class": sizes.images_per_class,
            "lr": 1e-3,
        },
        "losses": ["proxy_anchor", "mpa", "pnp"],
        "search": {
            "trials": 16,
            "sampler": "tpe",
            # with few steps an epoch, early rungs compare too little
            "pruner": "hyperband" if facts.on_half else "asha",
            "objective": "map_at_r",
        },
        "metrics": {
            "validation": ["recall_at_1", "map_at_r"],
            "gallery": "training_half" if facts.on_half else "validation",
            "test": "all" if len(ks) == len(KS) else [*(f"recall_at_{k}" for k in ks), "map_at_r", "r_precision"],
        },
        "resources": {"cpus_per_trial": 1, "gpus_per_trial": sizes.gpus_per_trial},
        "selection": {"finalists": 3, "seeds": 2},
        "final": {"seeds": 3, "train_on": "all" if facts.on_half else "train"},
        "stages": ["search", "select", "test"],
    }
    if facts.split_seed:
        content["split"]["seed"] = facts.split_seed
    if sizes.image_size is not None:
        content["model"] = {"backbone": sizes.backbone, "weights": sizes.weights}
        content["training"]["image_size"] = sizes.image_size
        if not sizes.frozen:  # frozen features are computed without augmentation
            content["training"]["augment"] = "crop_flip"
    if sizes.frozen:
        content["model"]["freeze"] = BACKBONE
    if sizes.frozen or facts.features is not None:
        content["space"] = {"training": RATES}
    content["model"]["embedding_dim"] = sizes.embedding_dim
    found = "\n".join(f"# {sentence}" for sentence in (*facts.sentences(), machine.sentence))
    keys = [
        commented(SearchConfig, {key: content[key]}) if key in content else commented_out(SearchConfig, key)
        for key in SearchConfig.model_fields
    ]
    return "\n".join([f"{HEAD}{found}\n", *keys])


RATES = {"lr": {"low": 1e-5, "high": 1e-2, "log": True}, "proxy_lr": {"low": 1e-4, "high": 1e-1, "log": True}}
"""Ranges of the learning rates of a layer on features."""

HEAD = """\
# A search for the best settings of several losses. `holdout run FILE` starts it, or resumes it if it was stopped.
# Keys that are not listed here have their defaults: `holdout keys --all` lists them, runs/NAME/search.yaml has all.
"""


def _dataset(facts: ImageFacts) -> dict[str, Any]:
    if facts.features is not None:
        return {"name": "features", "file": facts.root}
    found: dict[str, Any] = {"name": "glyphs"} if facts.root is None else {"name": "folder", "root": facts.root}
    if facts.root is not None and is_manifest(facts.root):
        found = {"name": "manifest", "file": facts.root, **({"root": facts.paths} if facts.paths else {})}
    return {**found, "store_size": 256}


def refuse_existing(path: Path) -> None:
    """Raise :class:`InvalidInput` if the file exists."""
    if path.exists() or path.is_symlink():
        raise InvalidInput(f"{path} already exists and is not overwritten; name another with --output, or remove it.")


def write_initial_file(path: Path, text: str) -> None:
    try:
        write_text(path, text, new=True)
    except FileExistsError:
        refuse_existing(path)
        raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written ({error.strerror}); name another with --output.") from error
