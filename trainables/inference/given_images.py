"""Decoding of images given as paths, bytes or arrays, in batches ahead of the network.

Shapes: H, W pixels; N images.
"""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from trainables.common.errors import InvalidInput, raise_if_any, shaped
from trainables.common.process import allotted_cpus
from trainables.data.images import Unreadable, as_it_looks, fitted, identified, open_file, unreadable
from trainables.data.sets.folders import as_on_disk, images_below

ImageLike: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | np.ndarray


def found_images(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the files among ``paths``, and the images below the folders, sorted by name and without hidden ones."""
    found: list[Path] = []
    sentences = []
    for path in map(as_on_disk, paths):
        if not path.exists():
            sentences.append(f"There is no image and no folder {str(path)!r}.")
            continue
        below = sorted(path / key for key in images_below(path, path)) if path.is_dir() else [path]
        if not below:
            sentences.append(f"The folder {str(path)!r} holds no image.")
        found += below
    raise_if_any(sentences)
    return found


def each_image(images: ImageLike | Iterable[ImageLike]) -> Iterable[ImageLike]:
    """Return an iterable of single images from one image, a folder, a batch in one array, or several images."""
    if isinstance(images, str | os.PathLike):
        return found_images([images])
    if isinstance(images, bytes | Image.Image):
        return [images]
    if isinstance(images, np.ndarray):
        are_objects = images.dtype.kind in "OU"  # paths, or images of several sizes
        return images if images.ndim == 4 or are_objects else [images]
    if not isinstance(images, Iterable):
        raise InvalidInput(f"images is {images!r}, which is not an image and not iterable; give paths or arrays.")
    return images


def name_of(position: int, image: ImageLike) -> str:
    """Return an image's path, or ``image <position>`` if it has none."""
    return os.fspath(image) if isinstance(image, str | os.PathLike) else f"image {position}"


def decoded(image: ImageLike, short_side: int) -> np.ndarray:
    """Decode ``image`` to uint8 [H, W, 3], scaled down to a short side of at most ``short_side`` pixels.

    A path or ``bytes`` hold an encoded image. Arrays are uint8 [H, W, 3] or grey [H, W]. May raise any error.
    """
    if isinstance(image, str | os.PathLike):
        with open_file(Path(image)) as file:
            return fitted(as_it_looks(identified(file)), short_side)
    if isinstance(image, bytes):
        return fitted(as_it_looks(identified(io.BytesIO(image))), short_side)
    if isinstance(image, Image.Image):
        return fitted(as_it_looks(image), short_side)
    if not isinstance(image, np.ndarray):
        raise ValueError(f"it is a {type(image).__name__}, not a path, bytes, PIL image or array")
    if image.dtype != np.uint8 or not (image.ndim == 2 or image.shape[2:] == (3,)) or not image.size:
        raise ValueError(
            f"an array must be uint8 of height × width × 3, or height × width for grey; it is {image.dtype} of "
            f"{shaped(image.shape)}"
        )
    return fitted(image if image.ndim == 3 else np.stack([image] * 3, axis=2), short_side)


def decoded_batches(
    images: Iterable[ImageLike], batch_size: int, short_side: int
) -> Iterator[Sequence[np.ndarray | Unreadable]]:
    """Yield decoded images in batches, with short sides of at most ``short_side`` pixels.

    The next batch is decoded on all cores while the current one is used; Pillow decodes and resizes without the GIL.
    """
    from trainables.data.loading import one_ahead  # imports torch, which a list of images does not need

    def one(place: tuple[int, ImageLike]) -> np.ndarray | Unreadable:
        position, image = place
        try:
            return decoded(image, short_side)
        except Exception as error:  # decoders raise anything; all bad images are reported together
            return unreadable(name_of(position, image), error)

    numbered = enumerate(images)
    batches = iter(lambda: [*islice(numbered, batch_size)], [])
    with ThreadPoolExecutor(allotted_cpus()) as pool:
        yield from one_ahead(batches, lambda batch: [*pool.map(one, batch)])
