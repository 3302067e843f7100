"""Figures made of test images: retrieved neighbours, and maps of embeddings.

Shapes: N test images, S sampled images, D embedding dimensions; 2 is (x, y).
"""

import io
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from search.report.drawing import BAD, COLOURS, GOOD, Figure, Photograph, row_label
from search.report.results import Comparison
from search.report.rows import Row
from search.selection import SHORT_SIDE, ExampleKind, RetrievalFile, Thumbnails
from search.stages import Role
from search.text_table import TextTable
from trainables.errors import counted

if TYPE_CHECKING:
    from PIL import Image, ImageFont


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedConfiguration:
    """A row of the comparison with the seeds of its models and the ranking by the ``first`` one (first seed and fold).

    ``confused`` counts wrong nearest neighbours of all models by the numbers of the query's and the neighbour's class.
    """

    row: Row
    seeds: tuple[int, ...]
    first: RetrievalFile
    confused: Counter[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedTest:
    """The test images by key and class (``labels_N`` are positions in ``class_names``), and the configurations."""

    folder: Path
    keys: tuple[str, ...]
    labels_N: NDArray[np.int64]
    class_names: tuple[str, ...]
    configurations: tuple[RankedConfiguration, ...]

    def class_of(self, image: int) -> str:
        """Return the name of an image's class."""
        return self.class_names[self.labels_N[image]]

    @property
    def tuned(self) -> tuple[RankedConfiguration, ...]:
        """The tuned configuration of each loss."""
        return tuple(entry for entry in self.configurations if entry.row.role is Role.TUNED)


# Queries with their nearest images.

TITLES = {
    ExampleKind.BEST: "Best queries",
    ExampleKind.MEDIAN: "Median queries",
    ExampleKind.WORST: "Worst queries",
    ExampleKind.CHANGED: "Queries most changed by tuning",
}
_QUERY, _SIDE, _LABEL, _GAP = 72, 44, 150, 4
_CAPTION = 18


def retrieval_gallery(
    comparison: Comparison, test: RankedTest, thumbnails: Thumbnails, kind: ExampleKind
) -> Figure | None:
    """Draw the queries of one kind with their nearest images by the first model of every configuration.

    Returns None if there are no such queries.
    """
    queries = [query.row for query in thumbnails.queries if query.kind is kind]
    if not queries:
        return None
    shown = test.configurations
    labels = [row_label(comparison, entry.row) for entry in shown]
    row_of = {int(row): place for place, row in enumerate(shown[0].first.queries_Q)}
    found = {
        (query, place): entry.first.neighbours_QK[row_of[query]].tolist()
        for query in queries
        for place, entry in enumerate(shown)
    }
    step = _SIDE + _GAP
    block = max(len(shown) * step, _QUERY) + _CAPTION + 12
    left = _QUERY + _GAP + _LABEL
    ranks = shown[0].first.neighbours_QK.shape[1]
    mosaic = Mosaic(left + ranks * step, len(queries) * block, thumbnails.pictures)
    for position, query in enumerate(queries):
        top = position * block
        mosaic.text((0, top), f"{test.class_of(query)}  ({test.keys[query]})", 12, room=left + ranks * step)
        mosaic.paste(query, (0, top + _CAPTION), _QUERY, test.class_of(query))
        for place, label in enumerate(labels):
            line = top + _CAPTION + place * step
            mosaic.text((_QUERY + 2 * _GAP, line + _SIDE // 2 - 7), label, 11, room=_LABEL - 2 * _GAP)
            for rank, image in enumerate(found[query, place]):
                corner = (left + rank * step, line)
                right = test.labels_N[image] == test.labels_N[query]
                colour = GOOD if right else BAD
                mosaic.paste(image, corner, _SIDE, test.class_of(image))
                mosaic.frame(corner, _SIDE, colour, 3)
                mosaic.mark((corner[0] + _SIDE - 14, line + _SIDE - 14), colour, right=bool(right))
    rights = [
        float(np.mean([np.sum(test.labels_N[found[query, place]] == test.labels_N[query]) for query in queries]))
        for place in range(len(shown))
    ]
    return Figure(
        name=f"gallery-{kind}",
        title=TITLES[kind],
        finding=_finding(test, thumbnails, kind, rights, ranks, len(queries)),
        picture=mosaic.photograph(),
        table=TextTable(
            header=("query", "class", "configuration", "correct", f"classes of the {ranks} nearest"),
            rows=tuple(
                (
                    test.keys[query],
                    test.class_of(query),
                    label,
                    str(sum(test.labels_N[image] == test.labels_N[query] for image in found[query, place])),
                    ", ".join(test.class_of(image) for image in found[query, place]),
                )
                for query in queries
                for place, label in enumerate(labels)
            ),
            labels=3,
            notes=("First model of each configuration; nearest image first.",),
        ),
        wide=True,
    )


def _finding(
    test: RankedTest, thumbnails: Thumbnails, kind: ExampleKind, rights: list[float], ranks: int, queries: int
) -> str:
    by_role = {
        role: [right for entry, right in zip(test.configurations, rights, strict=True) if entry.row.role is role]
        for role in (Role.DEFAULT, Role.TUNED)
    }
    means = [f"{np.mean(found):.1f} of {ranks} for {role} models" for role, found in by_role.items() if found]
    which = "largest change" if kind is ExampleKind.CHANGED else f"{kind} value"
    return (
        f"Nearest images of the query's class, mean over {counted(queries, 'query', 'queries')} with the {which} of "
        f"{thumbnails.metric}: {', '.join(reversed(means))}."
    )


# Maps of embeddings: images of a few test classes in two dimensions.

SIDE = 680
FEWEST = 5
"""Smallest number of images that makes a map."""


def embedding_map(
    comparison: Comparison, test: RankedTest, thumbnails: Thumbnails, entry: RankedConfiguration
) -> Figure | None:
    """Draw the sampled images at their places by the first model of ``entry``; None with fewer than five.

    The places are those of t-SNE (van der Maaten and Hinton 2008), from the first two principal components.
    """
    import sklearn.manifold  # noqa: F401  # before the limit, which only holds for loaded libraries
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    sample_S, embeddings_SD = entry.first.sample_S, entry.first.embeddings_SD.astype(np.float64)
    if len(sample_S) < FEWEST:
        return None
    labels_S = test.labels_N[sample_S]
    classes = np.unique(labels_S).tolist()
    with threadpool_limits(1):  # waiting for threads makes short loops ten times slower on a busy machine
        places_S2, how = _tsne(embeddings_SD)
    label = row_label(comparison, entry.row)
    number = test.configurations.index(entry)
    return Figure(
        name=f"map-tsne-{number}",
        title=f"t-SNE map of {label}",
        finding=(
            f"{len(sample_S)} images of {counted(len(classes), 'class', 'classes')}, each class with its number and "
            f"one of ten colours; {how}."
        ),
        picture=_picture(thumbnails, sample_S, labels_S, places_S2, classes).photograph(),
        table=TextTable(
            header=("number", "class", "images"),
            rows=tuple(
                (str(place + 1), test.class_names[at], str(int((labels_S == at).sum())))
                for place, at in enumerate(classes)
            ),
            labels=2,
            notes=(
                f"First model of {label}; classes and images sampled by the SHA-256 of their names.",
                *_without_picture(thumbnails, sample_S),
            ),
        ),
    )


def _without_picture(thumbnails: Thumbnails, sample_S: NDArray[np.int32]) -> list[str]:
    missing = sum(int(image) not in thumbnails.pictures for image in sample_S)
    if not thumbnails.pictures:
        return ["The data are features, without pictures of the items."]
    return [f"{counted(missing, 'image')} without a picture: the number of thumbnails is limited."] if missing else []


def _tsne(embeddings_SD: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Return the places [S, 2], and how they were found."""
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(embeddings_SD) - 1) / 3)
    left_SK, spread_K, axes_KD = np.linalg.svd(embeddings_SD - embeddings_SD.mean(axis=0), full_matrices=False)
    # the sign of an axis is arbitrary: make its largest weight positive
    sign_K = np.sign(axes_KD[np.arange(len(axes_KD)), np.abs(axes_KD).argmax(axis=1)])
    start_S2 = np.pad((left_SK * spread_K * sign_K)[:, :2], ((0, 0), (0, max(0, 2 - len(spread_K)))))
    scale = start_S2[:, 0].std()
    start_S2 = (1e-4 * start_S2 / scale if scale else start_S2).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # identical embeddings have no scale
        made = TSNE(init=start_S2, perplexity=perplexity, max_iter=350, random_state=0)
        places_S2 = made.fit_transform(embeddings_SD).astype(np.float64)
    return places_S2, f"t-SNE, perplexity {perplexity:g}, KL divergence {made.kl_divergence_:.2f}"


def _picture(
    thumbnails: Thumbnails,
    sample_S: NDArray[np.int32],
    labels_S: NDArray[np.int64],
    places_S2: NDArray[np.float64],
    classes: Sequence[int],
) -> "Mosaic":
    """Paint the map; each class has a number at the image nearest to its median, and one of ten colours."""
    side = 24 if len(sample_S) > 200 else 36
    mosaic = Mosaic(SIDE, SIDE, thumbnails.pictures)
    low, high = places_S2.min(axis=0), places_S2.max(axis=0)
    corners_S2 = ((places_S2 - low) / np.where(high > low, high - low, 1) * (SIDE - side)).round().astype(int)
    for image, label, corner_2 in zip(sample_S.tolist(), labels_S.tolist(), corners_S2.tolist(), strict=True):
        corner = (corner_2[0], corner_2[1])
        mosaic.paste(image, corner, side)
        mosaic.frame(corner, side, COLOURS[classes.index(label) % len(COLOURS)], 3)
    for place, label in enumerate(classes):
        of_class_S2 = corners_S2[labels_S == label]
        from_median_S = ((of_class_S2 - np.median(of_class_S2, axis=0)) ** 2).sum(axis=1)
        x, y = of_class_S2[from_median_S.argmin()].tolist()
        colour = COLOURS[place % len(COLOURS)]
        mosaic.draw.rounded_rectangle((x, y, x + 22, y + 18), radius=4, fill=colour, outline="white")
        mosaic.text((x + (3 if place > 8 else 7), y + 1), str(place + 1), 13, colour="white")
    return mosaic


# Pictures composed of small images.

GREY = "#7d8590"
"""Colour of text, legible on white and on black."""


class Mosaic:
    """A transparent canvas of ``width`` × ``height`` pixels for ``pictures``, encoded images by image number."""

    def __init__(self, width: int, height: int, pictures: Mapping[int, bytes]) -> None:
        from PIL import Image, ImageDraw

        self._pictures = pictures
        self._canvas = Image.new("RGBA", (width, height))
        self.draw = ImageDraw.Draw(self._canvas)

    def paste(self, image: int, corner: tuple[int, int], side: int, name: str = "") -> None:
        """Paste the central square of a picture at ``corner``, ``side`` pixels wide, or a frame with ``name``."""
        left, top = corner
        picture = self._pictures.get(image)
        if picture is None:
            self.draw.rectangle((left, top, left + side - 1, top + side - 1), outline=GREY)
            self.text((left + 4, top + side // 2 - 6), name, 9, room=side - 8)
            return
        self._canvas.paste(_square(picture, side), corner)

    def frame(self, corner: tuple[int, int], side: int, colour: str, width: int) -> None:
        """Draw a frame inside a square."""
        left, top = corner
        self.draw.rectangle((left, top, left + side - 1, top + side - 1), outline=colour, width=width)

    def text(self, corner: tuple[int, int], text: str, size: int, colour: str = GREY, room: int | None = None) -> None:
        """Draw a line of text, cut to ``room`` pixels."""
        font = _font(size)
        line = " ".join(text.split())
        if room is not None and font.getlength(line) > room:
            while line and font.getlength(line + "…") > room:
                line = line[:-1]
            line += "…"
        self.draw.text(corner, line, fill=colour, font=font)

    def mark(self, corner: tuple[int, int], colour: str, *, right: bool) -> None:
        """Draw a white check mark or cross on a coloured square of 14 pixels."""
        left, top = corner
        self.draw.rectangle((left, top, left + 13, top + 13), fill=colour)
        strokes = [[(3, 7), (6, 10), (11, 3)]] if right else [[(3, 3), (10, 10)], [(10, 3), (3, 10)]]
        for stroke in strokes:
            self.draw.line([(left + x, top + y) for x, y in stroke], fill="white", width=2)

    def photograph(self) -> Photograph:
        """Return the canvas as WebP."""
        content = io.BytesIO()
        self._canvas.save(content, "WEBP", quality=80)
        width, height = self._canvas.size
        return Photograph(content.getvalue(), "image/webp", width, height)


@lru_cache(maxsize=1024)
def _square(picture: bytes, side: int) -> "Image.Image":
    """Return the central square of a thumbnail; cached, since all maps show the same ones.

    Raises:
        ValueError: it is none. Of other formats, some would run programs (EPS).
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(picture), formats=("WEBP",)) as content:
            if min(content.size) > SHORT_SIDE:
                raise ValueError(f"a thumbnail has {content.width} × {content.height} pixels")
            return ImageOps.fit(content.convert("RGB"), (side, side), Image.Resampling.BICUBIC)
    except (OSError, Image.DecompressionBombError) as error:
        raise ValueError("a thumbnail is no WebP image") from error


@cache
def _font(size: int) -> "ImageFont.FreeTypeFont":
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)
