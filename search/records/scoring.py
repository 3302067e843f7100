"""Scoring a trained model on images that it was not trained on. It runs on a worker.

Shapes: N test images, D embedding, Q queries, K ranks.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from search.records.retrieval_file import FOLDER, MOST_NEIGHBOURS, RANKS, RetrievalFile, map_images, sampled_queries
from search.records.score_files import (
    BaselineScoring,
    FailedScoring,
    Scored,
    ScoredBaseline,
    ScoredModel,
    Scoring,
    baseline_entry,
)
from search.stages import UNTRAINED, WHITENED
from trainables.common.errors import InvalidInput
from trainables.common.files import as_path, digest_of
from trainables.common.process import contained
from trainables.common.vectors import unit, without_order
from trainables.data.dataset import Dataset
from trainables.data.store.view import StoreView, protocol_for, superclasses_for
from trainables.inference.model_files import parsed_tensors, tensors_bytes
from trainables.metrics import is_retrieval, metric_name, split_subset
from trainables.metrics.evaluation import evaluate, from_parts, metric_parts
from trainables.metrics.gallery import Gallery
from trainables.metrics.retrieval import RetrievalProtocol
from trainables.training.cross_validation import training_class
from trainables.training.epoch_training import Diverged
from trainables.training.inputs import Inputs, of_backbone, raise_if_other
from trainables.training.spec import TrialSpec, defined
from trainables.training.train import failure_of
from trainables.training.untrained_network import whitened

# Neighbours and a few embeddings.


def retrieval_of(
    embeddings_ND: torch.Tensor,
    labels_N: torch.Tensor,
    keys: Sequence[str],
    class_names: Sequence[str],
    protocol: RetrievalProtocol | None = None,
) -> RetrievalFile:
    """Compute the ranking by a model with these embeddings; ``labels_N`` are positions in ``class_names``."""
    labels_N = labels_N.to(embeddings_ND.device)
    gallery = Gallery(embeddings_ND, labels_N, protocol)
    queries_N = None if protocol is None else protocol.queries_N.numpy()
    queries_Q = sampled_queries(keys, MOST_NEIGHBOURS, queries_N)
    sample_S = map_images(keys, labels_N.cpu().numpy(), class_names)
    neighbours_QK = gallery.neighbours(torch.from_numpy(queries_Q).long().to(embeddings_ND.device), RANKS)
    unit_ND = unit(embeddings_ND.float())
    return RetrievalFile(
        queries_Q=queries_Q,
        neighbours_QK=neighbours_QK.cpu().numpy().astype(np.int32),
        sample_S=sample_S,
        embeddings_SD=unit_ND[torch.from_numpy(sample_S).long()].cpu().numpy().astype(np.float16),
    )


# Metrics of subsets of the test classes, stored next to those of all classes.


def _by_subset(names: Sequence[str]) -> dict[str | None, list[str]]:
    """Group the metrics ``names`` by their subset of the test classes, which is removed from the name; None is all."""
    found: dict[str | None, list[str]] = {}
    for name in names:
        metric, subset = split_subset(name)
        found.setdefault(subset, []).append(metric)
    return found


def images_of(
    subset: str | None, labels_N: torch.Tensor, class_names: Sequence[str], test_subsets: Mapping[str, Sequence[str]]
) -> torch.Tensor:
    """Return a mask of the images in the subset, bool [N]; ``labels_N`` are positions in ``class_names``."""
    if subset is None:
        return torch.ones(len(labels_N), dtype=torch.bool)
    of_subset = frozenset(test_subsets[subset])
    return torch.tensor([name in of_subset for name in class_names])[labels_N]


def _subset_name(name: str, subset: str | None) -> str:
    return name if subset is None else f"{name}-{subset}"


@contained()
def score(scoring: Scoring | BaselineScoring) -> list[Scored]:
    """Score a model, or the baselines; an error costs the scores of one model alone.

    The files, per-image results and the ranking, are returned, since a worker may not have access to the runs folder.
    Embeddings are computed in float32, independently of the precision of the training.
    """
    entry: dict[str, Any] = {}
    try:
        view, embedded = _embedded(scoring, entry)
    except Exception as error:  # of a user's training, or of the machine
        if isinstance(scoring, BaselineScoring):
            raise
        return [_failed(entry, error, scoring.spec.trainable)]
    scores = []
    for entry, embeddings_ND in embedded:
        try:
            scores.append(_scored(entry, embeddings_ND, view, scoring))
        except Exception as error:  # of a user's metric, or of the machine
            named = {"loss": entry["name"], "seed": None, "per_image": entry["per_image"]} if "name" in entry else entry
            scores.append(_failed(named, error, getattr(scoring.spec, "trainable", None)))
    return scores


def _embedded(
    scoring: Scoring | BaselineScoring, entry: dict[str, Any]
) -> tuple[StoreView, list[tuple[dict[str, Any], torch.Tensor]]]:
    """Return the items, and the entry of the model, or of each baseline, with its embeddings [N, D].

    The ``entry`` of a model is completed step by step.
    """
    # Not `torch.cuda.is_available()`: a Ray task without a GPU sees them all.
    device = torch.device("cuda" if scoring.gpu else "cpu")
    if isinstance(scoring, Scoring):
        entry |= scoring.row
        checkpoint = as_path(scoring.checkpoint)
        entry["model_sha256"] = digest_of(checkpoint.read_bytes())
        view, embeddings_ND = training_class(scoring.spec).tested(scoring.spec, checkpoint, scoring.images, device)
        return view, [(entry, embeddings_ND)]
    spec = scoring.spec
    raise_if_other(of_backbone(spec.model), scoring.network)
    inputs = Inputs(scoring.images, spec.model, spec.training, device)
    view = inputs.view(scoring.images.class_names)
    features_NF = inputs.features()[view.rows_N.to(device)]
    layer, _ = parsed_tensors(scoring.whitening, Path(f"{WHITENED}.safetensors"))
    digest = digest_of(scoring.whitening)
    embedded = {UNTRAINED: features_NF, WHITENED: whitened(features_NF, layer)}
    return view, [(baseline_entry(name, scoring.network, digest), found) for name, found in embedded.items()]


@contained()
def embeddings_of(scoring: Scoring | BaselineScoring) -> list[tuple[dict[str, Any], bytes]]:
    """Return for a model, or each baseline, its entry and a file with its embeddings of the items."""
    return [(entry, tensors_bytes({"embeddings": found.cpu()})) for entry, found in _embedded(scoring, {})[1]]


@contained()
def kept_problem(model: tuple[TrialSpec, str, bool]) -> str | None:
    """Return why a model cannot be scored: loaded as for that, it is not the one that was trained. None if it is.

    ``model`` is its training, its checkpoint, and True if the task has a GPU. Items of the training half are embedded.
    """
    spec, checkpoint, gpu = model
    try:
        return training_class(spec).kept_problem(spec, as_path(checkpoint), torch.device("cuda" if gpu else "cpu"))
    except Exception as error:  # of a user's training, or of the machine
        return failure_of(error).reason


def _failed(entry: Mapping[str, Any], error: Exception, trainable: str | None = None) -> Scored:
    """Return a failure; it is repairable unless it is a property of the model."""
    failure = failure_of(error)
    repairable = isinstance(error, OSError | ImportError) or (trainable is None and isinstance(error, InvalidInput))
    of_model = failure.cause in ("DIVERGED", "CODE_ERROR") and not repairable
    return Scored(record=FailedScoring(**entry, reason=failure.reason), is_repairable=not of_model)


def test_scores(
    embeddings_ND: torch.Tensor, view: StoreView, dataset: Dataset, names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the metrics ``names`` of all test items, ``view``, as an entry of ``test.json``, and their parts."""
    labels_N, class_names, test_subsets = view.labels_N, view.class_names, dataset.test_subsets()
    superclasses_N, protocol = superclasses_for(names, dataset, view), protocol_for(dataset, view.image_keys)
    parts: dict[str, torch.Tensor] = {}
    metrics: dict[str, float] = {}
    undefined: dict[str, str] = {}
    for subset, of_subset in _by_subset(names).items():
        of_N = images_of(subset, labels_N, class_names, test_subsets)
        its_superclasses = None if superclasses_N is None else superclasses_N[of_N]
        its_protocol = None if protocol is None else protocol[of_N]
        found = metric_parts(embeddings_ND[of_N], labels_N[of_N], of_subset, its_superclasses, its_protocol)
        values = from_parts(found, labels_N[of_N], of_subset)
        others, reasons = [name for name in of_subset if name not in values], dict[str, str]()
        values |= evaluate(embeddings_ND[of_N], labels_N[of_N], others, undefined=reasons)
        undefined |= {_subset_name(name, subset): reason for name, reason in reasons.items()}
        for name, part in found.items():
            stored = part
            if is_retrieval(name):  # [N], NaN for the images of other classes
                stored = part.new_full((len(of_N),), torch.nan)
                stored[of_N] = part
            parts[_subset_name(name, subset)] = stored
        metrics |= {_subset_name(name, subset): value for name, value in values.items()}
    entry: dict[str, Any] = {"metrics": defined({name: metrics[name] for name in map(metric_name, names)})}
    return entry | ({"undefined": undefined} if undefined else {}), parts


def kept_metrics(
    kept: Mapping[str, torch.Tensor], class_names: Sequence[str], dataset: Dataset, names: Sequence[str]
) -> dict[str, float]:
    """Return the metrics that follow from the parts of :func:`test_scores`, which were stored with the ``labels``."""
    metrics: dict[str, float] = {}
    for subset, of_subset in _by_subset(names).items():
        of_N = images_of(subset, kept["labels"], class_names, dataset.test_subsets())
        parts = {
            metric: part[of_N] if is_retrieval(metric) else part
            for name, part in kept.items()
            for metric, of_part in [split_subset(name)]
            if of_part == subset
        }
        values = from_parts(parts, kept["labels"][of_N], of_subset)
        metrics |= {_subset_name(name, subset): value for name, value in values.items()}
    return metrics


def _scored(
    entry: Mapping[str, Any], embeddings_ND: torch.Tensor, view: StoreView, scoring: Scoring | BaselineScoring
) -> Scored:
    """Return ``entry`` with the scores of the embeddings of ``view``, and the files of their per-image results."""
    if bad := without_order(embeddings_ND):
        raise Diverged(f"Of the test {scoring.images.dataset.noun}, {bad}.")
    dataset = scoring.images.dataset
    scores, parts = test_scores(embeddings_ND, view, dataset, scoring.metrics)
    content = io.BytesIO()
    np.savez_compressed(content, labels=view.labels_N.numpy(), keys=np.array(view.image_keys), **parts)  # type: ignore[arg-type]
    protocol = protocol_for(dataset, view.image_keys)
    retrieval = retrieval_of(embeddings_ND, view.labels_N, view.image_keys, view.class_names, protocol)
    files = {entry["per_image"]: content.getvalue(), f"{FOLDER}/{entry['per_image']}": retrieval.to_bytes()}
    record = (ScoredBaseline if "name" in entry else ScoredModel)(**entry, **scores)
    return Scored(record=record, files=files)
