"""Models as they are sent to a vault, data alone: a description and tensors, or an ONNX program; and their scores.

Shapes: N test items, C classes, D embedding dimensions; B items of a batch.
"""

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from search.records import BaselineScoring, Scoring, baseline_entry, test_scores
from search.stages import BASELINES, WHITENED
from search.vault.held import HeldItems
from search.vault.protocol import EMBEDDINGS, NETWORK, PROGRAM, SentModel
from search.vault.sandbox import Outcome
from trainables.common.errors import InvalidInput, listed
from trainables.common.files import as_path, digest_of
from trainables.common.vectors import without_order
from trainables.data.loading import FeaturesInMemory, ImagesInMemory
from trainables.data.store.view import Store, StoreView
from trainables.inference.model_files import (
    FROZEN,
    EmbedderSpec,
    description_of,
    of_network,
    parsed_tensors,
    read_network,
    tensors_bytes,
)
from trainables.metrics import is_retrieval
from trainables.models import library_networks as library_networks  # makes a folder when imported, which a child cannot
from trainables.models.backbones import FEATURES, is_own_network
from trainables.models.config import Lora, ModelConfig
from trainables.models.embedding import EmbeddingModel, embed
from trainables.training.epoch_training import KeptModel, probed
from trainables.training.inputs import BATCH, of_backbone, untrained, whole_network
from trainables.training.untrained_network import whitened

MOST_DIMENSIONS = 16_384
TRIED = 4
"""Items of noise that a model embeds before an opening."""
Embed = Callable[[Any], Tensor]
"""A function from images, or items of features, to embeddings."""


def tried(model: SentModel, dataset: HeldItems, device: str) -> Outcome:
    """Let ``model`` embed noise like the items of ``dataset``, or raise; runs in a child process, before an opening."""
    if model.form == EMBEDDINGS:
        embeddings_ND = _given(model, len(dataset))
    else:
        noise, side, features = np.random.default_rng(0), side_of(model), dataset.features()
        items: Any = ImagesInMemory([noise.integers(0, 256, (side, side, 3), dtype=np.uint8) for _ in range(TRIED)])
        if features is not None:
            items = FeaturesInMemory(torch.from_numpy(noise.standard_normal((TRIED, features), dtype=np.float32)))
        embeddings_ND = _sized(_network(model, torch.device(device))(items), TRIED)
    if not torch.isfinite(embeddings_ND).all():
        raise InvalidInput("The embeddings of a model are not finite; train it again.")
    return {}, b""


def score(model: SentModel, store: Store, names: Sequence[str], dataset: HeldItems, device: str) -> Outcome:
    """Score ``model`` on all items of ``store`` by the metrics ``names``; runs in a child process.

    The file has the labels, and for each retrieval metric the mean of an item's class in place of its own score. Raise
    if the model cannot be scored, with a sentence that says nothing of single items.
    """
    view = store.subset(store.class_names)
    in_order_of_keys = np.argsort(np.argsort(view.image_keys)).tolist()
    network = None if model.form == EMBEDDINGS else _network(model, torch.device(device))
    embeddings_ND = _sized(network(view), len(view)) if network else _given(model, len(view))[in_order_of_keys]
    if without_order(embeddings_ND):
        raise InvalidInput(f"Diverged: Of the test {dataset.noun}, embeddings are zero or not finite, or equal.")
    if network and (problem := KeptModel(view, network, network(probed(view)).cpu()).problem()):
        raise InvalidInput(problem)
    scores, parts = test_scores(embeddings_ND, view, dataset, names)
    return scores, _by_class(parts, view)


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


def _sized(embeddings_ND: Tensor, count: int) -> Tensor:
    """Return the embeddings; raise :class:`InvalidInput` unless they are [N, D] of ``count`` items."""
    if embeddings_ND.ndim != 2 or len(embeddings_ND) != count or not 1 <= embeddings_ND.shape[1] <= MOST_DIMENSIONS:
        raise InvalidInput(
            f"The embeddings of {count} items are of {' × '.join(map(str, embeddings_ND.shape))}; a vault scores one "
            f"of at most {MOST_DIMENSIONS:,} dimensions an item."
        )
    return embeddings_ND


def _given(model: SentModel, count: int) -> Tensor:
    """Return the embeddings [N, D] of ``count`` items that were computed elsewhere."""
    tensors, _ = parsed_tensors(model.files[0], Path("embeddings.safetensors"))
    return _sized(tensors.get("embeddings", torch.empty(0)), count).float()


def side_of(model: SentModel) -> int:
    """Return the short side of the decoded images that ``model`` takes; 1 for embeddings."""
    return 1 if model.form == EMBEDDINGS else _described(model).decoded_side


def _described(model: SentModel) -> EmbedderSpec:
    """Return the description of ``model``; raise if it is damaged, or names code."""
    if model.form == PROGRAM:  # what the network is, the program says
        return EmbedderSpec.from_json({**model.description, "model": {}}, "The model")
    spec = EmbedderSpec.from_json(model.description, "The model")
    if is_own_network(spec.model.backbone):
        raise InvalidInput(
            f"The model's network is {spec.model.backbone!r:.100}, whose code a vault does not run; send a built-in "
            "network, one of torchvision or timm, or an ONNX program."
        )
    return spec


def _network(model: SentModel, device: torch.device) -> Embed:
    """Return a network as the test of a search computes it: a frozen backbone comes first, in batches of its own."""
    spec, is_program, baseline = _described(model), model.form == PROGRAM, model.row.get("name")
    tensors: dict[str, Tensor] = {}
    for content in model.files[is_program:]:
        tensors |= of_network(parsed_tensors(content, Path("model.safetensors"))[0])

    def of(network: nn.Module, batch_size: int) -> Embed:
        network.to(device)
        return lambda of: embed(network, of, spec.frame, batch_size=batch_size, device=device, precision="float32")

    is_apart = baseline is not None or (FROZEN in spec.origin and not is_program)
    size, config = (BATCH, of_backbone(spec.model)) if is_apart else (spec.batch_size, spec.model)
    first = of(Program(model.files[0]) if is_program else _loaded(config, tensors), size)
    if baseline == WHITENED:
        return lambda items: whitened(first(items), tensors)
    if not is_apart or baseline:
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


def models_of(scoring: Scoring | BaselineScoring) -> Iterator[SentModel]:
    """Yield the model of a final training, or the baselines; a backbone that was frozen is a file of its own."""
    config = scoring.spec.model
    is_own, backbone = is_own_network(config.backbone), of_backbone(config)
    form = PROGRAM if is_own else NETWORK
    files: tuple[bytes, ...]
    if isinstance(scoring, BaselineScoring):
        layer, state = scoring.whitening, untrained(backbone).state_dict()
        description = description_of(layer)
        spec = replace(EmbedderSpec.from_json(description, "The whitening"), model=backbone)
        files = (program_of(spec, state) if is_own else tensors_bytes(state), layer)
        for name in BASELINES:
            row = baseline_entry(name, scoring.network, digest_of(layer))
            yield SentModel(row=row, form=form, files=files, description=description)
        return
    path = as_path(scoring.checkpoint)
    row = {**scoring.row, "model_sha256": digest_of(path.read_bytes())}
    state, description = read_network(path)
    frozen = description["origin"].get(FROZEN)
    if is_own:
        whole = whole_network(state, config, frozen) if frozen else state
        files = (program_of(EmbedderSpec.from_json(description, path), whole),)
    else:
        files = (*([tensors_bytes(untrained(backbone).state_dict())] if frozen else []), tensors_bytes(state))
    yield SentModel(row=row, form=form, files=files, description=description)


# ONNX programs in place of networks of the user's own: an allowed list of operators, and no data beside them.

OPERATORS = frozenset(
    """
    Abs Add And AveragePool BatchNormalization Cast Ceil Clip Concat Constant Conv Cos Div Dropout Elu Equal Erf
    Exp Expand Flatten Floor Gather GatherElements Gelu Gemm GlobalAveragePool GlobalMaxPool Greater
    GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization LayerNormalization
    LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max MaxPool Min Mish Mul Neg Not Or PRelu Pad Pow Range
    Reciprocal ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Resize Round Selu Shape Sigmoid
    Sign Sin Slice Softmax Softplus Split Sqrt Squeeze Sub Sum Swish Tanh Tile Transpose Trilu Unsqueeze Where
    """.split()  # noqa: SIM905
)
"""Operators of networks. Loops and branches, whose time tells of an item, random numbers and models in models are not
among them."""


def check_program(content: bytes) -> None:
    """Raise :class:`InvalidInput` if an ONNX program holds anything but allowed operators and inline weights."""
    import onnx

    try:
        program = onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf, or of ONNX's C++
        raise InvalidInput("The ONNX program cannot be read; export the network again.") from error
    graph, standard = program.graph, ("", "ai.onnx")
    if program.functions or any(entry.domain not in standard for entry in program.opset_import):
        raise InvalidInput(
            "The ONNX program has functions or operators of its own; export it with standard ones alone."
        )
    entries = [entry for node in graph.node for entry in node.attribute]
    tensors = [*graph.initializer, *(tensor for entry in entries for tensor in (entry.t, *entry.tensors))]
    if graph.sparse_initializer or any(tensor.external_data or tensor.data_location for tensor in tensors):
        raise InvalidInput("The ONNX program has weights in other files; export it with all of them inside.")
    unknown = {node.op_type for node in graph.node if node.op_type not in OPERATORS or node.domain not in standard}
    if unknown or any(entry.g.node or entry.graphs for entry in entries):
        raise InvalidInput(f"The ONNX program has the operators {listed(sorted(unknown))}, which a vault does not run.")
    if len(graph.input) != 1 or len(graph.output) != 1:
        raise InvalidInput("The ONNX program must have one input and one output; export it as `holdout export` does.")


def program_of(spec: EmbedderSpec, tensors: Mapping[str, Tensor] | None = None) -> bytes:
    """Return the program of the user's own network of ``spec``, with its initial weights or ``tensors``; or raise."""
    from trainables.inference.embedder import Embedder
    from trainables.inference.portable import onnx_bytes

    plain = replace(spec, model=replace(spec.model, weights=None, freeze=None, lora=Lora()))
    network = untrained(plain.model)
    if tensors is not None:
        network.load_state_dict(tensors)
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()):  # torch logs and prints the graph of what it cannot export
            content = onnx_bytes(Embedder(network, plain, "", torch.device("cpu")), raw=True)
    except Exception as error:  # a network of the user's can make the exporter raise anything
        reason = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        raise InvalidInput(
            f"model.backbone: {spec.model.backbone} cannot be exported to ONNX ({reason:.200}), in which form a vault "
            "takes a network of your own; change it, or ask for a vault of `--labels-only`."
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    check_program(content)
    return content


class Program(nn.Module):
    """A checked program as a network from images or vectors to embeddings."""

    def __init__(self, content: bytes) -> None:
        from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

        super().__init__()
        check_program(content)
        options = SessionOptions()
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL  # it computes constants when loading
        options.log_severity_level = 4
        try:
            self._session: Any = InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of C++
            raise InvalidInput("The ONNX program cannot be loaded; export the network again.") from error

    def forward(self, items_B: Tensor) -> Tensor:
        try:
            (found,) = self._session.run(None, {self._session.get_inputs()[0].name: items_B.cpu().numpy()})
        except Exception as error:  # of C++
            if "alloc" in str(error):
                raise MemoryError from error
            raise InvalidInput("The ONNX program cannot embed the items; it takes others.") from error
        return torch.from_numpy(np.asarray(found, dtype=np.float32)).to(items_B.device)
