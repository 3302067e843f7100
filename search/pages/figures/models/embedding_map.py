"""Maps of embeddings: the images of a few test classes at their places in two dimensions.

Shapes: S sampled images, D embedding; 2 is (x, y).
"""

import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.pages.figure import Figure
from search.pages.figures.models.mosaic import Mosaic
from search.pages.figures.models.seed_lines import configuration_labels
from search.pages.ink import COLOURS
from search.report.models.ranked_test import RankedConfiguration, RankedTest
from search.report.results.comparison import Comparison
from search.report.tables.text_table import TextTable
from search.selection.scores.thumbnails import Thumbnails

Method = Literal["PCA", "t-SNE"]
SIDE = 680
FEWEST = 5
"""With fewer images there is nothing to see."""


class _Placed(NamedTuple):
    places_S2: NDArray[np.float64]
    how: str


def embedding_map(
    comparison: Comparison, test: RankedTest, thumbnails: Thumbnails, entry: RankedConfiguration, method: Method
) -> Figure | None:
    """The sampled images where the first model of ``entry`` puts them; None where there are fewer than five.

    ``method`` is t-SNE (van der Maaten and Hinton 2008) or the first two principal components.
    """
    import sklearn.manifold  # noqa: F401  # before the limit, which holds for libraries that are loaded
    from threadpoolctl import threadpool_limits  # scikit-learn's own

    sample_S, embeddings_SD = entry.first.sample_S, entry.first.embeddings_SD.astype(np.float64)
    if len(sample_S) < FEWEST:
        return None
    labels_S = test.labels_N[sample_S]
    classes = np.unique(labels_S).tolist()
    with threadpool_limits(1):  # on a busy machine many short loops wait for their threads ten times as long
        places_S2, how = _tsne(embeddings_SD) if method == "t-SNE" else _pca(embeddings_SD)
        on_map_S, in_space_S = (_neighbour_is_right(values, labels_S) for values in (places_S2, embeddings_SD))
    (label,) = configuration_labels(comparison, [entry])
    number = test.configurations.index(entry)
    return Figure(
        name=f"map-{'tsne' if method == 't-SNE' else 'pca'}-{number}",
        title=f"{method} map of {label}",
        finding=(
            f"{how}; {on_map_S.mean():.0%} of the {len(sample_S)} images of {len(classes)} classes have one of their "
            f"own class next to them on the map, {in_space_S.mean():.0%} in the {embeddings_SD.shape[1]} dimensions of "
            f"{label}."
        ),
        picture=_picture(thumbnails, sample_S, labels_S, places_S2, classes).photograph(),
        table=TextTable(
            title="",
            header=("number", "class", "images", "next to their own class on the map", "in the embedding"),
            rows=tuple(
                (
                    str(place + 1),
                    test.class_names[at],
                    str(int((labels_S == at).sum())),
                    *(f"{right_S[labels_S == at].mean():.0%}" for right_S in (on_map_S, in_space_S)),
                )
                for place, at in enumerate(classes)
            ),
            labels=2,
            notes=(
                f"The first model of {label}; classes and images by the SHA-256 of their names.",
                *_without_picture(thumbnails, sample_S),
            ),
        ),
    )


def _without_picture(thumbnails: Thumbnails, sample_S: NDArray[np.int32]) -> list[str]:
    gone = sum(int(image) not in thumbnails.pictures for image in sample_S)
    return [f"{gone} images have no picture: the test set's pictures have a limit."] if gone else []


def _pca(embeddings_SD: NDArray[np.float64]) -> _Placed:
    centred_SD = embeddings_SD - embeddings_SD.mean(axis=0)
    left_SK, spread_K, axes_KD = np.linalg.svd(centred_SD, full_matrices=False)
    # the sign of an axis is free: its largest weight points up
    sign_K = np.sign(axes_KD[np.arange(len(axes_KD)), np.abs(axes_KD).argmax(axis=1)])
    places_S2 = (left_SK * spread_K * sign_K)[:, :2]
    if places_S2.shape[1] < 2:
        places_S2 = np.pad(places_S2, ((0, 0), (0, 1)))
    total = (spread_K**2).sum()
    held = (spread_K[:2] ** 2).sum() / total if total else 1.0
    return _Placed(places_S2, f"The first two principal components hold {held:.0%} of the variance")


def _tsne(embeddings_SD: NDArray[np.float64]) -> _Placed:
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(embeddings_SD) - 1) / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of images that all lie in one spot, PCA has no scale
        start_S2 = _pca(embeddings_SD).places_S2
        scale = start_S2[:, 0].std()
        start_S2 = (1e-4 * start_S2 / scale if scale else start_S2).astype(np.float32)
        made = TSNE(init=start_S2, perplexity=perplexity, max_iter=350, random_state=0)
        places_S2 = made.fit_transform(embeddings_SD).astype(np.float64)
    return _Placed(places_S2, f"t-SNE with perplexity {perplexity:g} ends at a divergence of {made.kl_divergence_:.2f}")


def _neighbour_is_right(values_SD: NDArray[np.float64], labels_S: NDArray[np.int64]) -> NDArray[np.bool_]:
    squares_S = (values_SD**2).sum(axis=1)
    distances_SS = squares_S[:, None] + squares_S - 2 * values_SD @ values_SD.T
    np.fill_diagonal(distances_SS, np.inf)
    right_S: NDArray[np.bool_] = labels_S[distances_SS.argmin(axis=1)] == labels_S
    return right_S


def _picture(
    thumbnails: Thumbnails,
    sample_S: NDArray[np.int32],
    labels_S: NDArray[np.int64],
    places_S2: NDArray[np.float64],
    classes: Sequence[int],
) -> Mosaic:
    """Each class has a number at the image nearest to its median, and a colour, which repeat after ten."""
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
