"""Scores of a model that was sent to a vault, from data alone: a description and tensors, or an ONNX program.

Shapes: N test items, D embedding dimensions, B items of a batch.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from search.selection import test_metrics
from search.stages import UNTRAINED, WHITENED
from search.vault.programs import MOST_DIMENSIONS, Program, check_dimensions
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

TRAINED = "trained"
"""The kind of a model whose embeddings are scored, and not the features of its backbone."""
KINDS = (TRAINED, UNTRAINED, WHITENED)

TRIED = 4
"""Items of noise that a model embeds before an opening."""


@dataclass(frozen=True, kw_only=True)
class SentModel:
    """A model that was sent: its description, and the contents of its files.

    Attributes:
        description: that of the checkpoint (:class:`EmbedderSpec`).
        kind: :data:`TRAINED`, or ``untrained`` or ``whitened`` for the features of its backbone.
        tensors: files of tensors, the backbone's apart from the others' where it was frozen.
        program: an ONNX program in place of a network of the user's own.
        embeddings: a file with embeddings of all items, in the order of their keys, where only labels are secret.
    """

    description: Any
    kind: str = TRAINED
    tensors: tuple[bytes, ...] = ()
    program: bytes | None = None
    embeddings: bytes | None = None

    def checked(self) -> EmbedderSpec:
        """Return the description.

        Raises:
            InvalidInput: it is damaged, or names code, or a network that would be downloaded.
        """
        if self.kind not in KINDS:
            raise InvalidInput(f"The model is {self.kind!r:.100}; it must be one of {listed(KINDS)}.")
        if self.program is not None:  # what the network is, the program says
            return EmbedderSpec.from_json({**self.description, "model": {}}, "The model")
        spec = EmbedderSpec.from_json(self.description, "The model")
        library, colon, rest = (name := spec.model.backbone).partition(":")
        if colon and not on_features(name) and (library not in LIBRARIES or not rest.isidentifier()):
            raise InvalidInput(
                f"The model's network is {name!r:.100}, whose code a vault does not run; send a built-in network, one "
                "of torchvision or timm, or an ONNX program."
            )
        check_dimensions(spec.model.dimensions)
        return spec

    def side(self) -> int:
        """Return the short side of the decoded images that it takes; 1 for vectors."""
        return 1 if self.embeddings is not None else self.checked().decoded_side


def score(model: SentModel, store: Store, names: Sequence[str], dataset: Any, device: torch.device) -> Outcome:
    """Score ``model`` on all items of ``store`` by the metrics ``names``; runs in a child process.

    The file has the labels, and for each retrieval metric the mean of an item's class in place of its own score.

    Raises:
        InvalidInput: the model is not one that can be scored. The sentence says nothing of single items.
    """
    view = store.subset(store.class_names)
    given = model.embeddings
    if given is None:
        embeddings_ND = _embedded(model, view, device)
    else:  # in the order of the keys
        embeddings_ND = _given(given, len(view))[np.argsort(np.argsort(view.image_keys)).tolist()]
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
    order_C = np.argsort(view.class_names)
    number_C = np.argsort(order_C)
    labels_N = number_C[view.labels_N.numpy()]
    arrays: dict[str, np.ndarray] = {}
    for name, part in parts.items():
        if not is_retrieval(name):
            continue
        scores_N = part.double().cpu().numpy()
        queries_N = ~np.isnan(scores_N)
        sums_C = np.bincount(labels_N[queries_N], scores_N[queries_N], len(order_C))
        counts_C = np.bincount(labels_N[queries_N], minlength=len(order_C))
        means_C = sums_C / np.maximum(counts_C, 1)
        spread = [
            np.r_[
                np.full(counts_C[label], means_C[label]), np.full((labels_N == label).sum() - counts_C[label], np.nan)
            ]
            for label in range(len(order_C))
        ]
        arrays[name] = np.concatenate(spread)
    sizes_C = np.bincount(labels_N, minlength=len(order_C))
    keys = [f"class {label:04d} item {item}" for label, size in enumerate(sizes_C) for item in range(size)]
    content = io.BytesIO()
    np.savez_compressed(content, labels=np.repeat(np.arange(len(order_C)), sizes_C), keys=np.array(keys), **arrays)  # type: ignore[arg-type]
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


Embed = Callable[[Any], Tensor]
"""A function from images, or items of features, to embeddings."""


def tried(model: SentModel, features: int | None, count: int, device: torch.device) -> Outcome:
    """Let ``model`` embed noise, images or vectors of ``features`` numbers; runs in a child process, before an opening.

    Where it has embeddings of ``count`` items, these are checked.

    Raises:
        InvalidInput: it cannot.
    """
    noise = np.random.default_rng(0)
    if model.embeddings is not None:
        embeddings_ND = _given(model.embeddings, count)
    elif features is None:
        side = model.side()
        shown = [noise.integers(0, 256, (side, side, 3), dtype=np.uint8) for _ in range(TRIED)]
        embeddings_ND = _network(model, features, device)(ImagesInMemory(shown))
    else:
        numbers_NF = torch.from_numpy(noise.standard_normal((TRIED, features), dtype=np.float32))
        embeddings_ND = _network(model, features, device)(FeaturesInMemory(numbers_NF))
    if not torch.isfinite(embeddings_ND).all():
        raise InvalidInput("The embeddings of a model are not finite; train it again.")
    return {}, b""


def _embedded(model: SentModel, view: StoreView, device: torch.device) -> Tensor:
    """Return the embeddings [N, D] of the items of ``view``, checked to be those of each item alone."""
    network = _network(model, view.store.features, device)
    if problem := KeptModel(view, network, network(probed(view)).cpu()).problem():
        raise InvalidInput(problem)
    return network(view)


def _network(model: SentModel, features: int | None, device: torch.device) -> Embed:
    spec = model.checked()
    if model.program is not None:
        return Program(model.program).on(spec, device)
    expected = backbone(spec.model.backbone).features if on_features(spec.model.backbone) else None
    if expected != features:
        takes, has = (f"vectors of {number} numbers" if number else "images" for number in (expected, features))
        raise InvalidInput(f"A model takes {takes}, and the items of the vault are {has}.")
    tensors: dict[str, Tensor] = {}
    for content in model.tensors:
        tensors |= of_network(parsed_tensors(content, Path("model.safetensors"))[0])
    if model.kind != TRAINED or FROZEN in spec.origin:
        return _behind_features(spec, tensors, device, model.kind)
    return _whole(spec, tensors, device)


def _loaded(config: ModelConfig, tensors: Mapping[str, Tensor], device: torch.device) -> EmbeddingModel:
    network = EmbeddingModel(config)
    try:
        network.load_state_dict({name: tensors[name] for name in network.state_dict()})
    except (KeyError, RuntimeError) as error:
        raise InvalidInput(f"The weights of the model are not those of its network {config.backbone}.") from error
    return network.to(device)


def _whole(spec: EmbedderSpec, tensors: Mapping[str, Tensor], device: torch.device) -> Embed:
    """Return a network as the test of a search loads it."""
    network = _loaded(spec.model, tensors, device)

    def embedded(items: Any) -> Tensor:
        return embed(network, items, spec.frame, batch_size=spec.batch_size, device=device, precision="float32")

    return embedded


def _behind_features(spec: EmbedderSpec, tensors: dict[str, Tensor], device: torch.device, kind: str) -> Embed:
    """Return a network behind frozen features, which a search computes first and in batches of their own."""
    config = spec.model
    first = _loaded(of_backbone(config), tensors, device)
    behind = replace(config, backbone=f"{FEATURES}:{config.features}", pooling="avg", freeze_bn=False)
    head = _loaded(behind, tensors, device) if kind == TRAINED else None

    def embedded(items: Any) -> Tensor:
        features_NF = embed(first, items, spec.frame, batch_size=BATCH, device=device, precision="float32")
        if kind == WHITENED:
            return whitened(features_NF, tensors)
        if head is None:
            return features_NF
        in_memory, size = FeaturesInMemory(features_NF), spec.batch_size
        return embed(head, in_memory, spec.frame, batch_size=size, device=device, precision="float32")

    return embedded
