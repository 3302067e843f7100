"""A first, commented search file for a folder of images or a file of embeddings."""

import json
import math
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from search.config.image_facts import ImageFacts
from trainables.data.feature_file import is_feature_file
from trainables.data.sets.manifest import is_manifest
from trainables.files import write_text
from trainables.metrics.table import KS
from trainables.mistakes import Mistakes
from trainables.models.backbones import BACKBONES, FEATURES
from trainables.models.config import IMAGENET, ModelConfig
from trainables.models.weights import weights_path
from trainables.training.config import RESIZE

SMALLEST_SIDE, SMALL_SIDE, MIDDLE_SIDE, LARGE_SIDE = 16, 64, 112, 224
"""In pixels: the minimum of the small network, its intended maximum, the size of ImageNet's networks, and half of it
for a CPU."""

BATCH, IMAGES_PER_CLASS = 120, 5
BATCHES_AN_EPOCH = 4
"""Fewer would be few steps between two validations; a small data set gets a smaller batch instead."""

GENERAL_NAMES = ("images", "image", "img", "data", "train", "photos", "pictures")
"""Folder names that do not describe a data set; the parent's name is used instead."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """CPUs and GPUs to train on."""

    cpus: int
    gpus: int

    @property
    def sentence(self) -> str:
        """The machine as a sentence."""
        cpus, gpus = self.cpus, self.gpus
        return f"This machine has {cpus} CPU core{'s' * (cpus > 1)} and {gpus or 'no'} GPU{'s' * (gpus > 1)}."


def this_machine() -> Machine:
    """Return the CPUs and GPUs of this machine."""
    import torch

    return Machine(cpus=os.cpu_count() or 1, gpus=torch.cuda.device_count())


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A pretrained network: the ``backbone``, and its ``weights``, ``imagenet`` or the path of a file."""

    backbone: str
    weights: str

    def check(self, image_size: int) -> str:
        """Build the network with these weights and embed an image; return what was loaded as a sentence.

        Raises:
            Mistakes: the network does not exist, or the weights are not its own.
        """
        from trainables.models.embedding import smoke_test

        loaded = smoke_test(ModelConfig(backbone=self.backbone, weights=self.weights), image_size)
        return f"{self.backbone}: {loaded}."


def pretrained(backbone: str | None, weights: str | None) -> Pretrained | None:
    """Return the network that a user names; ImageNet's weights if there are no others, None without a backbone.

    Raises:
        Mistakes: there are weights without a backbone.
    """
    if backbone is None and weights is None:
        return None
    if backbone is None:
        raise Mistakes(
            f"--weights is {weights}, and --backbone is missing: name the network that the weights belong to, such as "
            "--backbone resnet50; `holdout backbones` lists others."
        )
    weights = IMAGENET if weights is None else weights
    return Pretrained(backbone=backbone, weights=weights if weights == IMAGENET else os.path.abspath(weights))


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
    """Choose sizes that fit the images and the machine, and that the batch sampler can fill.

    A pretrained ``network`` that the user names is frozen, so that a search takes minutes on any machine.
    """
    images_per_class = max(2, min(IMAGES_PER_CLASS, facts.class_sizes.middle))
    most = min(BATCH // images_per_class, facts.train_classes)
    classes = max(2, min(most, facts.train_images // (BATCHES_AN_EPOCH * images_per_class)))
    batch_size = classes * images_per_class
    steps = max(facts.train_images // batch_size, 1)
    if facts.features is not None:
        return Sizes(
            backbone=f"{FEATURES}:{facts.features}", weights=None, embedding_dim=min(facts.features, 512),
            image_size=None, images_per_class=images_per_class, batch_size=batch_size,
            epochs=min(max(math.ceil(340 / steps), 5), 20), gpus_per_trial=0,
        )  # fmt: skip
    assert facts.short_side is not None, "images have sides"
    sizes = Sizes(
        backbone="convnet",
        weights=None,
        embedding_dim=64,
        image_size=_image_size(facts.short_side.middle, SMALL_SIDE),
        images_per_class=images_per_class,
        batch_size=batch_size,
        epochs=min(max(math.ceil(200 / steps), 8), 30),
        gpus_per_trial=0.25 if machine.gpus else 0,  # the small network leaves room for other trials
    )
    if network is not None:
        side = _image_size(facts.short_side.middle, LARGE_SIDE if machine.gpus else MIDDLE_SIDE)
        return replace(
            sizes, backbone=network.backbone, weights=network.weights, frozen=True, embedding_dim=512, image_size=side,
            epochs=20,
        )  # fmt: skip
    if not machine.gpus or facts.short_side.middle <= SMALL_SIDE * RESIZE:
        return sizes
    backbone, weights = _large_backbone()
    return replace(
        sizes,
        backbone=backbone,
        weights=weights,
        embedding_dim=512 if backbone == "resnet50" else 128,
        image_size=_image_size(facts.short_side.middle, LARGE_SIDE),
        epochs=min(max(math.ceil(1000 / steps), 10), 60),
        gpus_per_trial=1,
    )


def _image_size(short_side: int, most: int) -> int:
    """Return the side of a crop from images with this short side, without enlarging them first."""
    return max(SMALLEST_SIDE, min(most, int(short_side / RESIZE)))


def _large_backbone() -> tuple[str, str | None]:
    """Return the best common network with ImageNet weights on this machine, else a smaller one without weights."""
    for name in ("resnet50", "resnet18"):
        published = BACKBONES[name].imagenet
        if published is not None and weights_path(published).is_file():
            return name, "imagenet"
    return "resnet18", None


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


FROZEN = """
  freeze: backbone      # only the layer behind it learns, on features that are computed once; null trains everything"""


def initial_text(facts: ImageFacts, machine: Machine, network: Pretrained | None = None) -> str:
    """Return the search file for these images on this machine, with a comment on every section."""
    sizes = sizes_for(facts, machine, network)
    seed = f"\n  seed: {facts.split_seed}              # the first with two images of a class in each part"
    return f"""\
# A search for the best settings of several losses. `holdout run FILE` starts it, or resumes it if it was stopped.
# Keys that are not listed here have their defaults: `holdout keys` describes them, runs/NAME/search.yaml has them all.
{chr(10).join(f"# {sentence}" for sentence in (*facts.sentences(), machine.sentence))}

# The name of the search: of its folder in runs/, and of its experiment in MLflow.
name: {_quoted(name_for(facts.root))}

{_dataset_text(facts)}

# The training and validation classes. The other {_test_classes(facts)} not used before the test.
split:
  ratio: {facts.ratio:g}{seed if facts.split_seed else ""}

{_model_text(sizes)}

# The training of one trial. A batch holds images_per_class images of each of batch_size / images_per_class classes.
{MIRRORED * (sizes.image_size is not None)}training:
  epochs: {sizes.epochs}
  batch_size: {sizes.batch_size}
  images_per_class: {sizes.images_per_class}
{_training_text(sizes)}

# The losses to compare. `holdout losses` shows all of them, with their papers.
losses: [proxy_anchor, mpa, pnp]

# A training of your own instead of losses: docs/own_training.md.
# trainable: "mylab.train:SentenceTraining"

# Training settings that differ for a loss.
# training_by_loss:
#   pnp: {{lr: 5.0e-4}}

# The search space. By default it is everything that `holdout losses` lists, in the ranges given there; here you can
# change a range, fix a value, or search training settings too.
# space:
#   mpa: {{proxies_per_class: [1, 2, 4], scale: 32}}
#   training: {{lr: {{low: 1.0e-4, high: 1.0e-2, log: true}}}}

# The search: the number of trials of each loss, and the metric on the validation classes that ranks them.
search:
  trials: 16
  sampler: tpe
  pruner: asha          # ends bad trials early; with none, all of them train to the end
  objective: map_at_r

# The metrics: after each epoch on the validation classes, and once on the test classes.
metrics:
  validation: [recall_at_1, map_at_r]
  test: {_test_metrics(facts)}

# The resources of one trial. As many trials run at once as fit on the machine.
resources:
  cpus_per_trial: 1
  gpus_per_trial: {sizes.gpus_per_trial:g}
  # engine: auto         # ray, or local: worker processes of this machine without Ray

# The best trials of a loss (finalists) are trained again with new seeds before one of them is chosen, since the best
# of many is partly luck.
selection:
  finalists: 3
  seeds: 2

# The chosen settings are trained with new seeds and scored on the test classes, once.
final:
  seeds: 3
  train_on: train       # all: on the validation classes too
  # within: 1.0         # call losses the same whose difference is surely below one point

# The variation of one setting from seed to seed: put `noise` first in stages below to measure it.
# noise: {{seeds: 5}}

# The storage of the trials' models, and its limit in gigabytes; by default the runs folder, without a limit.
# checkpoints: {{storage_path: s3://bucket/holdout, max_gb: 10}}

# The MLflow server or database; by default runs/mlflow.db. `mlflow/serve.sh` shows it.
# tracking: {{uri: http://127.0.0.1:5000}}

# The stages to run. [search] alone chooses nothing and does not open the test classes.
stages: [search, select, test]

# Packages of your own, parts of which this file names: `holdout submit` copies them to the cluster.
# ship: [mylab]
"""


def _test_classes(facts: ImageFacts) -> str:
    if facts.root is not None and is_manifest(facts.root):
        return "classes, those of the parts query and gallery or the second half by name, are"
    return "half of all classes, the second by name, is"


def _dataset_text(facts: ImageFacts) -> str:
    if facts.features is not None:
        return f"""\
# The embeddings, which are used as they are. A search on features has no settings for images.
dataset:
  name: features
  file: {_quoted(facts.root or "")}"""
    if facts.root is None:
        dataset = "name: glyphs"
    elif is_manifest(facts.root):
        dataset = f"name: manifest\n  file: {_quoted(facts.root)}"
        dataset += f"\n  root: {_quoted(facts.paths)}" if facts.paths else ""
    else:
        dataset = f"name: folder\n  root: {_quoted(facts.root)}"
    return f"""\
# The images. They are decoded once, to a short side of at most store_size pixels, and cached.
dataset:
  {dataset}
  store_size: 256"""


def _model_text(sizes: Sizes) -> str:
    if sizes.image_size is None:
        return f"""\
# The layers that turn features into a vector of embedding_dim numbers; null keeps their number. head is linear, mlp,
# residual or none.
model:
  head: linear
  embedding_dim: {sizes.embedding_dim}"""
    return f"""\
# The network that turns an image into a vector of embedding_dim numbers. `holdout backbones` lists others, and where
# their ImageNet weights are found: with them (weights: imagenet) far fewer images and epochs are enough.
model:
  backbone: {_quoted(sizes.backbone)}
  weights: {_quoted(sizes.weights) if sizes.weights else "null"}{FROZEN * sizes.frozen}
  embedding_dim: {sizes.embedding_dim}"""


MIRRORED = "# crop_flip mirrors half of the images; if left and right matter, as in writing, use augment: crop.\n"


def _training_text(sizes: Sizes) -> str:
    if sizes.image_size is None:
        return "  lr: 1.0e-3"
    fine_tuned = sizes.weights is not None and not sizes.frozen
    return f"""\
  image_size: {sizes.image_size}
  augment: crop_flip
  lr: {"1.0e-4" if fine_tuned else "1.0e-3"}
  warmup_epochs: {int(fine_tuned)}          # epochs that train the last layer only, for a network with weights"""


def _quoted(text: str) -> str:
    """Return ``text`` as a quoted YAML string."""
    return json.dumps(text, ensure_ascii=False)


def _test_metrics(facts: ImageFacts) -> str:
    """Return all metrics; for a very small test set, those whose k does not exceed the number of neighbours."""
    ks = [k for k in KS if k < facts.test_images]
    return "all" if len(ks) == len(KS) else f"[{', '.join(f'recall_at_{k}' for k in ks)}, map_at_r, r_precision]"


def refuse_existing(path: Path) -> None:
    """Raise :class:`Mistakes` if the file exists: nothing is overwritten."""
    if path.exists() or path.is_symlink():
        raise Mistakes(f"{path} already exists and is not overwritten; name another with --output, or remove it.")


def write_initial_file(path: Path, text: str) -> None:
    """Write a new search file.

    Raises:
        Mistakes: it exists, or its folder cannot be written to.
    """
    refuse_existing(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)  # if two processes write it at once, the second is refused
        write_text(path, text)
    except FileExistsError:
        refuse_existing(path)
        raise
    except OSError as error:
        raise Mistakes(f"{path} cannot be written ({error.strerror}); name another with --output.") from error
