"""What is kept for pictures of the scored models, against the results image by image.

Shapes: N test images, Q queries, K ranks.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from search.verify.check import differing

CLOSE = 1e-9
"""Scores are summed in another order than they were."""


def retrieval_problems(
    what: str, record: Mapping[str, Any], folder: Path, class_names: Sequence[str], names: Sequence[str]
) -> Iterator[str]:
    """Whether the files of an opening's models in ``folder`` are the recorded ones and say what their metrics say.

    A metric of a query that looks no further than the neighbours that were kept is computed once more from these.
    """
    from search.selection.scores.retrieval_file import FOLDER, RetrievalFile
    from search.selection.scores.thumbnails import NAME

    for model in record["scores"]:
        file, of_model = folder / FOLDER / model["per_image"], f"{what} {FOLDER}/{model['per_image']}"
        if not file.is_file():
            yield f"{of_model}: the file is gone."
            continue
        with np.load(folder / model["per_image"]) as content:
            per_image = {name: content[name] for name in ("keys", "labels", *names) if name in content.files}
        yield from _sampled(of_model, retrieval := RetrievalFile.read(file), per_image, class_names)
        yield from _ranked(of_model, retrieval, per_image)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        yield from differing(f"{of_model} sha256", model["retrieval_sha256"], digest)
    if not (pictures := folder / NAME).is_file():
        yield f"{what} {NAME}: the file is gone."
        return
    digest = hashlib.sha256(pictures.read_bytes()).hexdigest()
    yield from differing(f"{what} {NAME} sha256", record["thumbnails_sha256"], digest)


def _sampled(what: str, retrieval: Any, per_image: Mapping[str, Any], class_names: Sequence[str]) -> Iterator[str]:
    """The images are those of the rule, and every pair was counted."""
    from search.selection.scores.retrieval_file import MOST_NEIGHBOURS, MOST_RANKED
    from search.selection.scores.sample import map_images, sampled_queries

    keys, labels_N = per_image["keys"].tolist(), per_image["labels"]
    for name, stored, rule in (
        ("queries", retrieval.queries_Q, sampled_queries(keys, MOST_NEIGHBOURS)),
        ("sample", retrieval.sample_S, map_images(keys, labels_N, class_names)),
        ("ranked queries", retrieval.ranked_Q, sampled_queries(keys, MOST_RANKED)),
    ):
        yield from differing(f"{what} {name}", stored.tolist(), rule.tolist())
    same = int((np.bincount(labels_N)[labels_N[retrieval.ranked_Q]] - 1).sum())
    pairs = len(retrieval.ranked_Q) * (len(keys) - 1)
    yield from differing(f"{what} pairs of one class", int(retrieval.same_B.sum()), same)
    yield from differing(f"{what} pairs of two classes", int(retrieval.other_B.sum()), pairs - same)


def _ranked(what: str, retrieval: Any, per_image: Mapping[str, Any]) -> Iterator[str]:
    """The neighbours, with what each query's metrics say of them."""
    import torch

    from trainables.metrics.retrieval import SCORES, Ranking
    from trainables.metrics.table import AT_R, is_retrieval, split_at_k

    labels_N, queries_Q, neighbours_QK = per_image["labels"], retrieval.queries_Q, retrieval.neighbours_QK
    if (neighbours_QK == queries_Q[:, None]).any():
        yield f"{what} neighbours: a query is its own neighbour."
    ranks = neighbours_QK.shape[1]
    if not ranks:
        return  # one image has no neighbour
    positives_Q = np.bincount(labels_N)[labels_N[queries_Q]] - 1
    ranking = Ranking(
        relevant_QK=torch.from_numpy(labels_N[neighbours_QK] == labels_N[queries_Q][:, None]),
        positives_Q=torch.from_numpy(positives_Q.clip(max=ranks)),  # of more, nothing is compared
    )
    for name in filter(is_retrieval, per_image):
        if name in AT_R:
            row, k, known_Q = name, ranks, positives_Q <= ranks
        elif (at_k := split_at_k(name)) and at_k[1] <= ranks:
            (row, k), known_Q = at_k, np.ones(len(queries_Q), dtype=bool)
        else:
            continue  # looks further
        stored_Q, found_Q = per_image[name][queries_Q], SCORES[row](ranking, k).numpy()
        for query in np.flatnonzero(known_Q & ~np.isclose(stored_Q, found_Q, rtol=0, atol=CLOSE))[:1]:
            yield from differing(f"{what} {name} of image {queries_Q[query]}", stored_Q[query], found_Q[query])
