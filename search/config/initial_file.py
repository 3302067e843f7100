"""A first, commented search file for a folder of images or a file of embeddings."""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from search.config.image_facts import SMALL_SIDE, ImageFacts
from search.config.keys import commented, commented_out
from search.config.search_config import SearchConfig
from trainables.common.errors import InvalidInput
from trainables.common.files import absolute, write_text
from trainables.common.process import allotted_cpus
from trainables.data.dataset import Dataset
from trainables.data.sets.features import is_feature_file
from trainables.data.sets.manifest import is_manifest
from trainables.data.split import split_dataset
from trainables.metrics import KS
from trainables.models.backbones import FEATURES, backbone
from trainables.models.config import BACKBONE, IMAGENET, ModelConfig
from trainables.models.weights import weights_path
from trainables.training.training_config import RESIZE, TrainingConfig

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
        """True if the published weights are not on this machine; building a network without any raises its error.

        Raises:
            InvalidInput: there is no such network, or its library is not installed.
        """
        published = backbone(self.backbone).imagenet
        return self.weights == IMAGENET and published is not None and not weights_path(published).is_file()

    def fitted(self, image_size: int, dataset: Dataset, facts: ImageFacts) -> "tuple[Pretrained, str]":
        """Build the network with these weights and embed an image; return the network, and a sentence on what it loads.

        Where the weights fit variants of it too, that of the highest untrained score on training images is returned.

        Raises:
            InvalidInput: the network does not exist, or the weights are not its own.
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
    """The numbers of a search file that depend on the images and the machine.

    ``frozen`` trains only a layer behind the backbone, on cached features. Embeddings have no ``image_size``.
    """

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
    most = min(BATCH // images_per_class, facts.train_classes)
    classes = max(2, min(most, facts.train_images // (BATCHES_AN_EPOCH * images_per_class)))
    batch_size = classes * images_per_class
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
    side = facts.short_side.middle
    if network is None:
        return replace(sizes, image_size=_image_size(side, SMALL_SIDE))
    return replace(
        sizes, backbone=network.backbone, weights=network.weights, frozen=True, embedding_dim=512, epochs=20,
        image_size=_image_size(side, LARGE_SIDE if machine.gpus else MIDDLE_SIDE),
    )  # fmt: skip


def _image_size(short_side: int, most: int) -> int:
    """Return the side of a crop from images with this short side, without enlarging them first."""
    return max(SMALLEST_SIDE, min(most, int(short_side / RESIZE)))


def name_for(root: str | None) -> str:
    """Derive a search's name from its folder of images."""
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
            "test": _test_metrics(facts),
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
    if sizes.image_size is not None and not sizes.frozen:  # which frozen features are computed without
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
    if facts.root is None:
        return {"name": "glyphs", "store_size": 256}
    if is_manifest(facts.root):
        paths = {"root": facts.paths} if facts.paths else {}
        return {"name": "manifest", "file": facts.root, **paths, "store_size": 256}
    return {"name": "folder", "root": facts.root, "store_size": 256}


def _test_metrics(facts: ImageFacts) -> str | list[str]:
    """Return all metrics; for a very small test set, those whose k does not exceed the number of neighbours."""
    ks = [k for k in KS if k < facts.test_images]
    return "all" if len(ks) == len(KS) else [*(f"recall_at_{k}" for k in ks), "map_at_r", "r_precision"]


def refuse_existing(path: Path) -> None:
    """Raise :class:`InvalidInput` if the file exists: nothing is overwritten."""
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
