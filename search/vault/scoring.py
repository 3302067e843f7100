"""Scores of a model that was sent to a vault, from data alone: a description and tensors, or an ONNX program.

Shapes: N test items, C classes, D embedding dimensions.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from search.selection import test_metrics
from search.stages import UNTRAINED, WHITENED
from search.vault.programs import MOST_DIMENSIONS, Program, check_dimensions
from search.vault.protocol import TRAINED, SentModel
from search.vault.sandbox import Outcome
from trainables.data.loading import FeaturesInMemory, ImagesInMemory
from trainables.data.store.view import Store, StoreView, protocol_for, superclasses_for
from trainables.errors import InvalidInput, listed
from trainables.inference.model_files import FROZEN, EmbedderSpec, of_network, parsed_tensors
from trainables.metrics.table import is_retrieval, metric_name
from trainables.models.backbones import FEATURES, LIBRARIES, backbone, on_features
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel, embed
from trainables.spec import defined
from trainables.training.inputs import BATCH, of_backbone
from trainables.training.kept import KeptModel, probed
from trainables.training.untrained import whitened
from trainables.unit import without_order

KINDS = (TRAINED, UNTRAINED, WHITENED)
TRIED = 4
"""Items of noise that a model embeds before an opening."""

Embed = Callable[[Any], Tensor]
"""A function from images, or items of features, to embeddings."""


def score(model: SentModel, store: Store, names: Sequence[str], dataset: Any, device: str) -> Outcome:
    """Score ``model`` on all items of ``store`` by the metrics ``names``; runs in a child process.

    The file has the labels, and for each retrieval metric the mean of an item's class in place of its own score.

    Raises:
        InvalidInput: the model is not one that can be scored. The sentence says nothing of single items.
    """
    view = store.subset(store.class_names)
    if model.embeddings is None:
        network = _network(model, store.features, torch.device(device))
        if problem := KeptModel(view, network, network(probed(view)).cpu()).problem():
            raise InvalidInput(problem)
        embeddings_ND = network(view)
    else:  # in the order of the keys
        embeddings_ND = _given(model.embeddings, len(view))[np.argsort(np.argsort(view.image_keys)).tolist()]
    if not torch.isfinite(embeddings_ND).all() or without_order(embeddings_ND):
        raise InvalidInput("The embeddings of a model are not finite, or equal for all items; it cannot be scored.")
    superclasses_N, protocol = superclasses_for(names, dataset, view), protocol_for(dataset, view.image_keys)
    of_classes = view.labels_N, view.class_names, dataset, names, superclasses_N, protocol
    parts, metrics, undefined = test_metrics(embeddings_ND, *of_classes)
    entry = {"metrics": defined({name: metrics[name] for name in map(metric_name, names)})}
    return entry | ({"undefined": undefined} if undefined else {}), _by_class(parts, view)


def _by_class(parts: Mapping[str, Tensor], view: StoreView) -> bytes:
    """Return a file of results with the mean of its class for each query, NaN for other items.

    Means and sums over classes, and over all queries, are those of the single scores. Classes have the numbers of
    their neutral names, and come in that order, so neither tells of the data set's.
    """
    label_N = np.argsort(np.argsort(view.class_names))[view.labels_N.numpy()]
    rows_N, labels_N = np.argsort(label_N, kind="stable"), np.sort(label_N)
    arrays: dict[str, Any] = {"labels": labels_N, "keys": np.array([f"item {row}" for row in range(len(labels_N))])}
    for name, part in parts.items():
        if is_retrieval(name):
            arrays[name] = scores_N = part.double().cpu().numpy()[rows_N]
            for of_class in np.split(scores_N, np.flatnonzero(np.diff(labels_N)) + 1):  # parts of the same array
                scores = of_class[~np.isnan(of_class)]
                of_class[:] = np.nan
                of_class[: len(scores)] = scores.sum() / max(len(scores), 1)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def _given(content: bytes, count: int) -> Tensor:
    """Return the embeddings [N, D] of ``count`` items that were computed elsewhere."""
    tensors, _ = parsed_tensors(content, Path("embeddings.safetensors"))
    found = tensors.get("embeddings", torch.empty(0))
    if found.ndim != 2 or len(found) != count or not 1 <= found.shape[1] <= MOST_DIMENSIONS:
        raise InvalidInput(
            f"The embeddings are of {' × '.join(map(str, found.shape))}; the vault has {count} items, and accepts "
            f"at most {MOST_DIMENSIONS:,} dimensions."
        )
    return found.float()


def tried(model: SentModel, features: int | None, count: int, device: str) -> Outcome:
    """Let ``model`` embed noise, images or vectors of ``features`` numbers; runs in a child process, before an opening.

    Where it has embeddings of ``count`` items, these are checked.

    Raises:
        InvalidInput: it cannot.
    """
    noise, side = np.random.default_rng(0), side_of(model)
    if model.embeddings is not None:
        embeddings_ND = _given(model.embeddings, count)
    else:
        items: Any = ImagesInMemory([noise.integers(0, 256, (side, side, 3), dtype=np.uint8) for _ in range(TRIED)])
        if features is not None:
            items = FeaturesInMemory(torch.from_numpy(noise.standard_normal((TRIED, features), dtype=np.float32)))
        embeddings_ND = _network(model, features, torch.device(device))(items)
    if not torch.isfinite(embeddings_ND).all():
        raise InvalidInput("The embeddings of a model are not finite; train it again.")
    return {}, b""


# The networks.


def side_of(model: SentModel) -> int:
    """Return the short side of the decoded images that ``model`` takes; 1 for vectors."""
    return 1 if model.embeddings is not None else _checked(model).decoded_side


def _checked(model: SentModel) -> EmbedderSpec:
    """Return the description of ``model``.

    Raises:
        InvalidInput: it is damaged, or names code, or a network that would be downloaded.
    """
    if model.kind not in KINDS:
        raise InvalidInput(f"The model is {model.kind!r:.100}; it must be one of {listed(KINDS)}.")
    if model.program is not None:  # what the network is, the program says
        return EmbedderSpec.from_json({**model.description, "model": {}}, "The model")
    spec = EmbedderSpec.from_json(model.description, "The model")
    library, colon, rest = (name := spec.model.backbone).partition(":")
    if colon and not on_features(name) and (library not in LIBRARIES or not rest.isidentifier()):
        raise InvalidInput(
            f"The model's network is {name!r:.100}, whose code a vault does not run; send a built-in network, one "
            "of torchvision or timm, or an ONNX program."
        )
    check_dimensions(spec.model.dimensions)
    return spec


def _network(model: SentModel, features: int | None, device: torch.device) -> Embed:
    """Return a network as the test of a search computes it: a frozen backbone comes first, in batches of its own."""
    spec = _checked(model)
    tensors: dict[str, Tensor] = {}
    for content in model.tensors:
        tensors |= of_network(parsed_tensors(content, Path("model.safetensors"))[0])

    def of(network: nn.Module, batch_size: int) -> Embed:
        network.to(device)
        return lambda of: embed(network, of, spec.frame, batch_size=batch_size, device=device, precision="float32")

    is_apart = model.kind != TRAINED or (FROZEN in spec.origin and model.program is None)
    size, config = (BATCH, of_backbone(spec.model)) if is_apart else (spec.batch_size, spec.model)
    if model.program is not None:
        first = of(Program(model.program), size)
    else:
        expected = backbone(config.backbone).features if on_features(config.backbone) else None
        if expected != features:
            takes, has = (f"vectors of {number} numbers" if number else "images" for number in (expected, features))
            raise InvalidInput(f"A model takes {takes}, and the items of the vault are {has}.")
        first = of(_loaded(config, tensors), size)
    if model.kind == WHITENED:
        return lambda items: whitened(first(items), tensors)
    if not is_apart or model.kind == UNTRAINED:
        return first
    behind = replace(spec.model, backbone=f"{FEATURES}:{spec.model.features}", pooling="avg", freeze_bn=False)
    head = of(_loaded(behind, tensors), spec.batch_size)
    return lambda items: head(FeaturesInMemory(first(items)))


def _loaded(config: ModelConfig, tensors: Mapping[str, Tensor]) -> EmbeddingModel:
    network = EmbeddingModel(config)
    try:
        network.load_state_dict({name: tensors[name] for name in network.state_dict()})
    except (KeyError, RuntimeError) as error:
        raise InvalidInput(f"The weights of the model are not those of its network {config.backbone}.") from error
    return network
