"""The test images that a report shows, chosen when all models of an opening are scored."""

import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.selection.confirmation import Confirmation
from search.selection.scores.gallery import GalleryQuery, gallery_queries
from search.selection.scores.retrieval_file import FOLDER
from search.selection.scores.sample import in_digest_order
from search.selection.scores.thumbnails import Thumbnails, make_pictures
from search.selection.selection import Selection
from trainables.data.store.contents import read_contents
from trainables.metrics.table import is_retrieval

Scored = tuple[Mapping[str, Any], Mapping[str, bytes]]
"""What a worker gives of a model: its scores, and its files by their names."""


def thumbnails_of(store: Path, selection: Selection, scored: Sequence[Scored]) -> Thumbnails:
    """The pictures to keep of the opened images at ``store``, which are read for it, and for which queries they are.

    Queries come first, then their neighbours by the first model of each configuration, then the images of the map.
    """
    scores, files = scored[0]
    per_image = read_arrays(files[scores["per_image"]])
    keys, labels_N = per_image["keys"].tolist(), per_image["labels"]
    firsts = [model["per_image"] for model in first_models([model for model, _ in scored])]
    ranked = [
        read_arrays(files[f"{FOLDER}/{model['per_image']}"]) for model, files in scored if model["per_image"] in firsts
    ]
    metric = next(
        (name for name in (selection.objective, *selection.test_metrics) if is_retrieval(name) and name in per_image),
        None,
    )
    queries: list[GalleryQuery] = []
    if metric:
        tuned_N = _mean_score(selection.chosen, metric, scored)
        default_N = _mean_score(selection.defaults, metric, scored)
        queries = gallery_queries(keys, labels_N, ranked[0]["queries_Q"], tuned_N, default_N)
    rows = [query.row for query in queries]
    places = np.searchsorted(ranked[0]["queries_Q"], rows)
    neighbours = [found["neighbours_QK"][places].T.ravel().tolist() for found in ranked]
    sample = ranked[0]["sample_S"].tolist()
    on_map = [sample[position] for position in in_digest_order([keys[row] for row in sample])]
    wanted = list(dict.fromkeys([*rows, *chain.from_iterable(zip(*neighbours, strict=True)), *on_map]))
    pictures = make_pictures(read_contents(store), [keys[row] for row in wanted])
    return Thumbnails(
        pictures=dict(zip(wanted, pictures, strict=False)),  # the last ones may have found no room
        queries=tuple(queries),
        metric=metric,
    )


def first_models(scores: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first of the models of each configuration: that of its first seed and fold."""
    firsts: dict[tuple[str, int], Mapping[str, Any]] = {}
    for model in scores:
        firsts.setdefault((model["loss"], model["configuration"]), model)
    return list(firsts.values())


def read_arrays(content: bytes, *names: str) -> dict[str, NDArray[Any]]:
    """The arrays ``names`` of an npz file, or all."""
    with np.load(io.BytesIO(content)) as file:
        return {name: file[name] for name in names or file.files}


def _mean_score(role: Mapping[str, Confirmation], metric: str, scored: Sequence[Scored]) -> NDArray[np.float64]:
    """The score of each image, averaged over the models of a role's configurations, all losses weighing the same."""
    of_losses: list[NDArray[np.float64]] = []
    for loss, entry in role.items():
        found = [
            read_arrays(files[model["per_image"]], metric)[metric]
            for model, files in scored
            if (model["loss"], model["configuration"]) == (loss, entry.number)
        ]
        of_losses += [np.mean(found, axis=0)] if found else []
    mean_N: NDArray[np.float64] = np.mean(of_losses, axis=0)
    return mean_N
