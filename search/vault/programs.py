"""ONNX programs in place of networks of the user's own: an allowed list of operators, and no data beside them.

Shapes: B items of a batch.
"""

import logging
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainables.common.errors import InvalidInput, listed
from trainables.inference.model_files import EmbedderSpec
from trainables.models.model_config import Lora

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
    """Return the program of the user's own network of ``spec``, with its initial weights or ``tensors``.

    Raises:
        InvalidInput: a vault could not run it.
    """
    from trainables.inference.embedder import Embedder
    from trainables.inference.portable import onnx_bytes
    from trainables.training.inputs import untrained

    plain = replace(spec, model=replace(spec.model, weights=None, freeze=None, lora=Lora()))
    network = untrained(plain.model)
    if tensors is not None:
        network.load_state_dict(tensors)
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(StringIO()):  # torch logs and prints the graph of what it cannot export
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
