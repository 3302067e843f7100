"""Scoring one trained model on images it was not trained on; runs on a worker, and takes no part in training."""

import hashlib
import io
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from search.selection.scores.retrieval import retrieval_of
from search.selection.scores.retrieval_file import FOLDER
from search.selection.scores.scoring import Scoring
from search.selection.scores.small_galleries import in_small_galleries
from search.selection.scores.subset_parts import by_subset, images_of, spread_parts, subset_name
from trainables.data.store.spec import opened_store
from trainables.data.superclasses import superclasses_for
from trainables.files.whole import as_path
from trainables.inference.embed import embed
from trainables.inference.tensors_file import read_network
from trainables.metrics import evaluate, metric_name
from trainables.metrics.parts import from_parts, metric_parts
from trainables.models import EmbeddingModel


def score(scoring: Scoring) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The metrics of a model with the names and digests of two files, and these by their names: its per-image results,
    and how it ranks the images (:class:`~search.selection.scores.retrieval_file.RetrievalFile`).

    It embeds in float32, however it was trained. A worker may not see the runs folder: the driver writes them.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    spec = scoring.spec
    store = opened_store(scoring.images)
    view = store.subset(scoring.images.class_names)
    model = EmbeddingModel(replace(spec.model, weights=None)).to(device)
    checkpoint = as_path(scoring.checkpoint)
    model.load_state_dict(read_network(checkpoint)[0])
    training = spec.training
    embeddings_ND = embed(
        model, view, training.frame, batch_size=training.embedding_batch, device=device, precision="float32"
    )
    labels_N = view.labels_N
    names = scoring.metrics
    superclasses_N = superclasses_for((*names, spec.objective), scoring.images.dataset, view)
    parts: dict[str, torch.Tensor] = {}
    metrics: dict[str, float] = {}
    test_subsets = scoring.images.dataset.test_subsets()
    for subset, of_subset in by_subset(names).items():
        of_N = images_of(subset, labels_N, view.class_names, test_subsets)
        its_superclasses = None if superclasses_N is None else superclasses_N[of_N]
        found = metric_parts(embeddings_ND[of_N], labels_N[of_N], of_subset, its_superclasses)
        values = from_parts(found, labels_N[of_N], of_subset)
        values |= evaluate(embeddings_ND[of_N], labels_N[of_N], [name for name in of_subset if name not in values])
        parts |= spread_parts(found, subset, of_N)
        metrics |= {subset_name(name, subset): value for name, value in values.items()}
    content = io.BytesIO()
    np.savez_compressed(content, labels=labels_N.numpy(), keys=np.array(view.image_keys), **parts)  # type: ignore[arg-type]
    retrieval = retrieval_of(embeddings_ND, labels_N, view.image_keys, view.class_names)
    files = {scoring.per_image: content.getvalue(), f"{FOLDER}/{scoring.per_image}": retrieval.to_bytes()}
    digests = [hashlib.sha256(file).hexdigest() for file in files.values()]
    scores = {
        "loss": scoring.loss,
        "configuration": scoring.configuration,
        "seed": scoring.seed,
        "fold": scoring.fold,
        "metrics": {name: metrics[name] for name in map(metric_name, names)},
        "model_sha256": hashlib.sha256(checkpoint.read_bytes()).hexdigest(),
        "in_small_galleries": in_small_galleries(
            embeddings_ND, labels_N, spec.objective, scoring.gallery, superclasses_N
        )
        if scoring.gallery
        else None,
        "per_image": scoring.per_image,
        "sha256": digests[0],
        "retrieval_sha256": digests[1],
    }
    return scores, files
