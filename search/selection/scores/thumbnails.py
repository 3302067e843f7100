"""Small pictures of the test images that a report may show, kept when the test is scored, since nobody opens it again.

Shapes: T pictures, G queries.
"""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from search.selection.scores.gallery import GalleryQuery, Kind
from trainables.data.store.contents import StoreContents
from trainables.files.whole import reading

NAME = "thumbnails.npz"
SHORT_SIDE = 64
QUALITY = 80
LIMIT = 3_000_000
"""Bytes of pictures for a test set at most; the first ones that are asked for are kept."""


@dataclass(frozen=True, kw_only=True)
class Thumbnails:
    """WebP files of test images by their numbers, the queries to show, and the ``metric`` that these were chosen by.

    The metric is None where none has a score for each query; then there are no queries.
    """

    pictures: Mapping[int, bytes]
    queries: tuple[GalleryQuery, ...]
    metric: str | None

    def to_bytes(self) -> bytes:
        """The content of the file, which is of numpy's kind (npz)."""
        content = io.BytesIO()
        np.savez(  # WebP is compressed
            content,
            rows_T=np.array([*self.pictures], dtype=np.int32),
            lengths_T=np.array([len(picture) for picture in self.pictures.values()], dtype=np.int32),
            pictures=np.frombuffer(b"".join(self.pictures.values()), dtype=np.uint8),
            query_rows_G=np.array([query.row for query in self.queries], dtype=np.int32),
            query_kinds_G=np.array([str(query.kind) for query in self.queries], dtype=np.str_),
            metric=np.array(self.metric or ""),
        )
        return content.getvalue()

    @classmethod
    def read(cls, path: Path) -> "Thumbnails":
        """The file at ``path``.

        Raises:
            FileNotFoundError: it is gone.
        """
        with reading(path), np.load(path) as file:
            content = {name: file[name] for name in file.files}
        ends_T = np.cumsum(content["lengths_T"])
        pictures = content["pictures"].tobytes()
        return cls(
            pictures={
                int(row): pictures[end - length : end]
                for row, end, length in zip(content["rows_T"], ends_T, content["lengths_T"], strict=True)
            },
            queries=tuple(
                GalleryQuery(Kind(kind), int(row))
                for kind, row in zip(content["query_kinds_G"], content["query_rows_G"], strict=True)
            ),
            metric=str(content["metric"]) or None,
        )


def make_pictures(contents: StoreContents, keys: Iterable[str], limit: int = LIMIT) -> list[bytes]:
    """The images called ``keys`` as WebP files, their short side at most 64 pixels, as many as ``limit`` bytes hold."""
    row_of = {key: row for row, key in enumerate(contents.image_keys)}
    starts_N = np.cumsum(contents.lengths_N) - contents.lengths_N
    made: list[bytes] = []
    for key in keys:
        row = row_of[key]
        height, width = contents.sizes_N2[row]
        start = starts_N[row]
        pixels = contents.pixels[start : start + 3 * height * width].reshape(width, height, 3).transpose(1, 0, 2)
        picture = _webp(Image.fromarray(np.ascontiguousarray(pixels)))
        limit -= len(picture)
        if limit < 0:
            break
        made.append(picture)
    return made


def _webp(image: Image.Image) -> bytes:
    scale = min(1, SHORT_SIDE / min(image.size))
    width, height = (max(round(scale * side), 1) for side in image.size)
    content = io.BytesIO()
    image.resize((width, height), Image.Resampling.LANCZOS).save(content, "WEBP", quality=QUALITY)
    return content.getvalue()
