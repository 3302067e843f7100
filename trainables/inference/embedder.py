"""Trained networks loaded from disk, and the embedding of images of any kind.

Shapes: N images, or items of F features; D embedding dimensions.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.common.errors import InvalidInput, shaped
from trainables.common.files import digest_of
from trainables.common.vectors import numbers, unit
from trainables.data.images import Unreadable, cannot_be_read
from trainables.data.loading import Features, FeaturesInMemory, Images, ImagesInMemory
from trainables.data.sets.features import SUFFIXES, read_features
from trainables.inference.given_images import ImageLike, decoded_batches, each_image, name_of
from trainables.inference.index import ImageIndex
from trainables.inference.model_files import FROZEN, EmbedderSpec, ModelFiles, not_trusted, read_model, tensors_bytes
from trainables.models.backbones import backbone, is_own_network
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel, embed

OnProgress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedded:
    """Embeddings [N, D] of the readable images, their positions among all images, and the unreadable ones."""

    embeddings_ND: NDArray[np.float32]
    positions_N: NDArray[np.int64]
    unreadable: tuple[Unreadable, ...]


@dataclass(eq=False, repr=False)
class Embedder:
    """A network on a device, with its preprocessing. Created by :func:`holdout.load`.

    It embeds as the search's test did. ``spec`` describes the network and its training, ``card`` does so in Markdown
    for people. ``address`` is the path or URL it was loaded from, if any.
    """

    network: EmbeddingModel
    spec: EmbedderSpec
    card: str
    device: torch.device
    address: str | None = None

    def __post_init__(self) -> None:
        self.network = self.network.to(self.device).eval()

    def __repr__(self) -> str:
        model = self.spec.model
        return f"<holdout.Embedder {model.backbone}, {model.dimensions} dimensions, on {self.device}>"

    @cached_property
    def weights_sha256(self) -> str:
        """Return the SHA-256 of these weights as a file ``model.safetensors``, regardless of their source."""
        return digest_of(tensors_bytes(self.network.state_dict()))

    def embed(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> NDArray[np.float32]:
        """Compute embeddings of length 1.

        Args:
            images: one image or several: paths, encoded ``bytes``, PIL images, arrays (uint8, [H, W, 3] or grey
                [H, W]); a batch of them in one array; or a folder, whose images are sorted by name. For a model of
                features: an array or tensor [N, F] or [F], or the path of a file of embeddings.
            batch_size: images embedded at once; by default as in the test. Another value may change the last bits.
            on_progress: called with the number of images done, after every batch.

        Returns:
            float32 [N, D] in the order of the images.

        Raises:
            InvalidInput: images cannot be read (all of them are listed), none is given, or ``batch_size`` is less than
                1.
        """
        found = self.embed_readable(images, batch_size=batch_size, on_progress=on_progress)
        if found.unreadable:
            raise InvalidInput(cannot_be_read(found.unreadable, len(found.positions_N) + len(found.unreadable)))
        return found.embeddings_ND

    def embed_readable(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Embedded:
        """Compute embeddings as :meth:`embed` does, skipping unreadable images."""
        size = self.spec.batch_size if batch_size is None else batch_size
        if size < 1:
            raise InvalidInput(f"batch_size is {size}; give 1 or more.")
        if self.network.on_vectors:
            features_NF = given_features(images, self.spec.model)
            embeddings_ND = self.embed_decoded(FeaturesInMemory(features_NF), batch_size=size)
            if on_progress:
                on_progress(len(features_NF))
            return Embedded(embeddings_ND=embeddings_ND, positions_N=np.arange(len(features_NF)), unreadable=())
        chunks = [np.empty((0, self.spec.model.dimensions), np.float32)]
        positions: list[int] = []
        bad: list[Unreadable] = []
        done = 0
        for batch in decoded_batches(each_image(images), size, self.spec.decoded_side):
            readable = {done + at: image for at, image in enumerate(batch) if not isinstance(image, Unreadable)}
            positions += readable
            bad += [image for image in batch if isinstance(image, Unreadable)]
            done += len(batch)
            if readable:
                chunks.append(self.embed_decoded(ImagesInMemory([*readable.values()]), batch_size=len(readable)))
            if on_progress:
                on_progress(done)
        if not done:
            raise InvalidInput("There is no image to embed: give at least one.")
        found_N = np.array(positions, dtype=np.int64)
        return Embedded(embeddings_ND=np.concatenate(chunks), positions_N=found_N, unreadable=tuple(bad))

    def index(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> ImageIndex:
        """Build an index of images for similarity search; arguments and errors are those of :meth:`embed`.

        Images without a path are named ``image 0`` and so on, by position.
        """
        if self.network.on_vectors:
            embeddings_ND = self.embed(images, batch_size=batch_size, on_progress=on_progress)
            of_file = read_features(Path(images)).names if isinstance(images, str | os.PathLike) else None
            return ImageIndex.of(embeddings_ND, of_file or [f"row {row}" for row in range(len(embeddings_ND))], self)
        names: list[str] = []

        def named() -> Iterator[ImageLike]:
            for position, image in enumerate(each_image(images)):
                names.append(name_of(position, image))
                yield image

        embeddings_ND = self.embed(named(), batch_size=batch_size, on_progress=on_progress)
        return ImageIndex.of(embeddings_ND, names, self)

    def embed_decoded(self, images: Images | Features, *, batch_size: int | None = None) -> NDArray[np.float32]:
        """Compute embeddings as :meth:`embed` does, of features, or of images that are decoded and scaled down.

        The short sides of images are ``spec.decoded_side`` pixels, or fewer if the original is smaller.
        """
        raw_ND = embed(
            self.network, images, self.spec.frame,
            batch_size=batch_size or self.spec.batch_size, device=self.device, precision="float32",
        )  # fmt: skip
        return unit(raw_ND).cpu().numpy()


def given_features(items: object, model: ModelConfig) -> Tensor:
    """Return the features of ``items`` for the network ``model`` as float32 [N, F].

    ``items`` are an array, a tensor or lists of numbers, [N, F] or [F] for one item; or the path of a file of
    embeddings. Raises :class:`InvalidInput` if they are something else, of another size, or not finite.
    """
    expected = backbone(model.backbone).features
    if isinstance(items, str | os.PathLike):
        features_NF = torch.from_numpy(read_features(Path(items)).embeddings_NF)
    else:
        try:
            features_NF = torch.atleast_2d(numbers(items, "items").float().cpu())
        except InvalidInput:
            raise InvalidInput(
                "The model takes features and not images: give an array of items × features, or a file of embeddings "
                f"({', '.join(SUFFIXES)}); it is a {type(items).__name__}."
            ) from None
    if features_NF.ndim != 2 or features_NF.shape[1] != expected or not len(features_NF):
        found = f"The model takes {expected} features of each item, and they are of {shaped(features_NF.shape)}"
        raise InvalidInput(f"{found}; give items × {expected}.")
    if not features_NF.isfinite().all():
        raise InvalidInput("The features have numbers that are not finite; correct or remove them.")
    return features_NF


def load_model(address: str, *, device: str | torch.device | None = None, trust_code: bool = False) -> Embedder:
    """Load the network at ``address``, a path or a URL: a folder written by ``holdout export``, or a checkpoint.

    ``trust_code`` is to import and run the code of a user-defined network that the model names.
    """
    return embedder_of(read_model(address), device=device, trust_code=trust_code)


def embedder_of(files: ModelFiles, *, device: str | torch.device | None = None, trust_code: bool = False) -> Embedder:
    """Return the network that ``files`` describe; arguments and errors are those of :func:`load_model`."""
    where = available_device(device)
    spec = EmbedderSpec.from_json(files.description, files.address)
    if FROZEN in spec.origin and files.is_checkpoint:
        what = f"{files.address} holds only the layers behind a frozen backbone"
        raise InvalidInput(f"{what}; `holdout export` writes the whole network.")
    if is_own_network(spec.model.backbone) and not trust_code:
        raise not_trusted(files.address, "network", spec.model.backbone)
    network = EmbeddingModel(spec.model)
    try:
        network.load_state_dict(files.tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(f"The weights of {files.address} are not those of its network: {reason}") from error
    return Embedder(network, spec, files.card, where, address=files.known_as)


def available_device(asked: str | torch.device | None) -> torch.device:
    """Return the device that was asked for, by default a GPU; raise :class:`InvalidInput` if it is not available."""
    if asked is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=torch.device(asked)).device
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        found = f"{str(asked)!r}, which is not available here ({reason})"
        raise InvalidInput(f"device is {found}; give cpu, or leave it out.") from error
