"""A trained network that turns images of any kind into embeddings, as its test did.

Shapes: N images, D embedding dimensions.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from trainables.data.augmentation.load import Images
from trainables.data.decode import Unreadable, cannot_be_read
from trainables.data.store.in_memory import ImagesInMemory
from trainables.inference.embed import embed
from trainables.inference.embedder_spec import EmbedderSpec
from trainables.inference.images import ImageLike, decoded_batches, each_image, name_of
from trainables.inference.tensors_file import tensors_bytes
from trainables.mistakes import Mistakes
from trainables.models.embedding import EmbeddingModel

if TYPE_CHECKING:
    from trainables.inference.index.image_index import ImageIndex

OnProgress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedded:
    """Embeddings [N, D] of the images that could be read, which of all images these are, and the others."""

    embeddings_ND: NDArray[np.float32]
    positions_N: NDArray[np.int64]
    unreadable: tuple[Unreadable, ...]


class Embedder:
    """A network on a device, with its preprocessing. Made by :func:`holdout.load`.

    ``spec`` says what it is and what it was trained on, ``card`` the same for people, in Markdown. ``address`` is where
    it was loaded from, None where it was made otherwise.
    """

    def __init__(
        self,
        network: EmbeddingModel,
        spec: EmbedderSpec,
        card: str,
        device: torch.device,
        *,
        address: str | None = None,
    ) -> None:
        self.network = network.to(device).eval()
        self.spec = spec
        self.card = card
        self.device = device
        self.address = address

    def __repr__(self) -> str:
        model = self.spec.model
        return f"<holdout.Embedder {model.backbone}, {model.embedding_dim} dimensions, on {self.device}>"

    @cached_property
    def weights_sha256(self) -> str:
        """SHA-256 of the file ``model.safetensors`` that these weights make, whichever file they were read from."""
        return hashlib.sha256(tensors_bytes(self.network.state_dict())).hexdigest()

    def embed(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> NDArray[np.float32]:
        """Embeddings of length 1.

        Args:
            images: one image or several: paths, encoded ``bytes``, images of Pillow's, arrays (uint8, [H, W, 3] or
                grey [H, W]) or tensors ([3, H, W], uint8 or in 0 … 1); a batch of them in one array; or a folder, whose
                images come by name.
            batch_size: so many at once; by default as in the test. Another one may change last bits.
            on_progress: told how many images are done, now and then.

        Returns:
            float32 [N, D] in the order of the images.

        Raises:
            Mistakes: images that cannot be read, all of them, or none given; or a batch of less than one.
        """
        found = self.embed_readable(images, batch_size=batch_size, on_progress=on_progress, all_or_none=True)
        if found.unreadable:
            raise Mistakes(cannot_be_read(found.unreadable, len(found.positions_N) + len(found.unreadable)))
        return found.embeddings_ND

    def embed_readable(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
        all_or_none: bool = False,
    ) -> Embedded:
        """As :meth:`embed`, of the images that can be read.

        With ``all_or_none`` nothing is embedded any more once one could not be read: the rest is only looked through.

        Raises:
            Mistakes: no image given, or a batch of less than one.
        """
        size = self.spec.batch_size if batch_size is None else batch_size
        if size < 1:
            raise Mistakes(f"batch_size is {size}; give 1 or more.")
        chunks: list[NDArray[np.float32]] = []
        positions: list[int] = []
        bad: list[Unreadable] = []
        done = 0
        for batch in decoded_batches(each_image(images), size, self.spec.decoded_side):
            readable = [image for image in batch if not isinstance(image, Unreadable)]
            positions += [done + at for at, image in enumerate(batch) if not isinstance(image, Unreadable)]
            bad += [image for image in batch if isinstance(image, Unreadable)]
            done += len(batch)
            if readable and not (bad and all_or_none):
                chunks.append(self.embed_decoded(ImagesInMemory(readable), batch_size=len(readable)))
            if on_progress:
                on_progress(done)
        if not done:
            raise Mistakes("There is no image to embed: give at least one.")
        return Embedded(
            embeddings_ND=np.concatenate(chunks)
            if chunks
            else np.empty((0, self.spec.model.embedding_dim), np.float32),
            positions_N=np.array(positions, dtype=np.int64),
            unreadable=tuple(bad),
        )

    def index(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        kind: str | None = None,
        batch_size: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> "ImageIndex":
        """An index of images, to be asked for those most similar to others.

        Args:
            images: as for :meth:`embed`. Those that are no paths are called ``image 0`` and so on, by their position.
            kind: ``exact``, ``ivf`` or ``hnsw``; by default exact up to a million images, and ivf above. What an
                approximate one finds is measured: ``index.description.recall``.
            batch_size: as for :meth:`embed`.
            on_progress: as for :meth:`embed`.

        Raises:
            Mistakes: images that cannot be read, all of them, or none given; a kind that there is not, or not for so
                few images.
        """
        from trainables.inference.index.image_index import ImageIndex  # the training knows of no index

        names: list[str] = []

        def named() -> Iterator[ImageLike]:
            for position, image in enumerate(each_image(images)):
                names.append(name_of(position, image))
                yield image

        embeddings_ND = self.embed(named(), batch_size=batch_size, on_progress=on_progress)
        return ImageIndex.of(embeddings_ND, names, self, kind=kind)

    def embed_decoded(self, images: Images, *, batch_size: int | None = None) -> NDArray[np.float32]:
        """As :meth:`embed`, of images that were decoded and scaled down once, for this model or for several.

        Args:
            images: an image store's, or :class:`~trainables.data.store.in_memory.ImagesInMemory`. Their short sides
                are ``spec.decoded_side`` pixels; fewer only where the images themselves are smaller.
            batch_size: as above.
        """
        raw_ND = embed(
            self.network, images, self.spec.frame,
            batch_size=batch_size or self.spec.batch_size, device=self.device, precision="float32",
        )  # fmt: skip
        found: NDArray[np.float32] = normalize(raw_ND).cpu().numpy()
        return found
