"""ONNX programs in place of networks of the user's own: an allowed list of operators, and no data beside them.

Shapes: B items of a batch, D embedding dimensions.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.data.augment import Frame
from trainables.data.loading import load
from trainables.errors import InvalidInput, listed
from trainables.inference.model_files import EmbedderSpec
from trainables.models.config import ModelConfig

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

BATCH = 64
MOST_DIMENSIONS = 16_384


def check_dimensions(number: int) -> None:
    """Raise :class:`InvalidInput` if embeddings have more than :data:`MOST_DIMENSIONS`."""
    if number > MOST_DIMENSIONS:
        raise InvalidInput(f"The model has {number:,} dimensions; a vault scores at most {MOST_DIMENSIONS:,}.")


def check_program(content: bytes) -> None:
    """Raise :class:`InvalidInput` if an ONNX program holds anything but allowed operators and inline weights."""
    import onnx

    try:
        program = onnx.load_model_from_string(content)
    except Exception as error:  # of protobuf, or of ONNX's C++
        raise InvalidInput("The ONNX program cannot be read; export the network again.") from error
    graph = program.graph
    if program.functions or any(entry.domain not in ("", "ai.onnx") for entry in program.opset_import):
        raise InvalidInput(
            "The ONNX program has functions or operators of its own; export it with standard ones alone."
        )
    entries = [entry for node in graph.node for entry in node.attribute]
    tensors = [*graph.initializer, *(tensor for entry in entries for tensor in (entry.t, *entry.tensors))]
    if graph.sparse_initializer or any(tensor.external_data or tensor.data_location for tensor in tensors):
        raise InvalidInput("The ONNX program has weights in other files; export it with all of them inside.")
    unknown = {
        node.op_type for node in graph.node if node.op_type not in OPERATORS or node.domain not in ("", "ai.onnx")
    }
    if unknown or any(entry.g.node or entry.graphs for entry in entries):
        raise InvalidInput(f"The ONNX program has the operators {listed(sorted(unknown))}, which a vault does not run.")
    if len(graph.input) != 1 or len(graph.output) != 1:
        raise InvalidInput("The ONNX program must have one input and one output; export it as `holdout export` does.")
    try:
        onnx.checker.check_model(program)
    except Exception as error:  # of C++
        raise InvalidInput("The ONNX program is damaged; export the network again.") from error


def check_exportable(model: ModelConfig, frame: Frame) -> None:
    """Raise :class:`InvalidInput` if a vault could not run the ONNX program of the user's own network ``model``."""
    from trainables.inference.embedder import Embedder
    from trainables.inference.portable import onnx_bytes
    from trainables.training.inputs import untrained

    spec = EmbedderSpec(model=model, decoded_side=frame.side, frame=frame, batch_size=BATCH, origin={})
    try:
        content = onnx_bytes(Embedder(untrained(model), spec, "", torch.device("cpu")))
    except Exception as error:  # a network of the user's can make the exporter raise anything
        reason = str(error).strip().partition("\n")[0]
        raise InvalidInput(
            f"model.backbone: {model.backbone} cannot be exported to ONNX ({type(error).__name__}: {reason:.200}), in "
            "which form a vault takes a network of your own; change it, or ask for a vault of `--labels-only`."
        ) from error
    check_program(content)


class Program:
    """A checked program, which embeds images or vectors."""

    def __init__(self, content: bytes) -> None:
        from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

        check_program(content)
        options = SessionOptions()
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL  # it computes constants when loading
        options.log_severity_level = 4
        try:
            self._session: Any = InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of C++
            raise InvalidInput("The ONNX program cannot be loaded; export the network again.") from error

    def on(self, spec: EmbedderSpec, device: torch.device) -> Any:
        """Return the function that embeds images or vectors, [N, D]."""
        name = self._session.get_inputs()[0].name

        def embedded(items: Any) -> Tensor:
            chunks = []
            for batch in torch.arange(len(items)).split(min(BATCH, spec.batch_size)):
                items_B = load(items, batch, "none", spec.frame, device=torch.device("cpu"))
                try:
                    (found,) = self._session.run(None, {name: items_B.numpy()})
                except Exception as error:  # of C++
                    if "alloc" in str(error):
                        raise MemoryError from error
                    raise InvalidInput("The ONNX program cannot embed the items; it takes others.") from error
                found_BD = np.asarray(found, dtype=np.float32)
                if found_BD.ndim != 2 or len(found_BD) != len(batch):
                    raise InvalidInput("The ONNX program must return one embedding an item, [B, D]; it returns others.")
                check_dimensions(found_BD.shape[1])
                chunks.append(torch.from_numpy(found_BD))
            return torch.cat(chunks).to(device)

        return embedded
