"""Export of a model's network to a program that runs without this package: ONNX.

It takes float32 images [B, 3, S, S] in 0 … 1, already resized and cropped, or features [B, F], for any B, and returns
embeddings [B, D] of length 1; it includes the normalisation of colours and of embeddings.

Shapes: B images of a batch, S pixels a side, D embedding dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim

from trainables.common.files import write_whole
from trainables.common.storage import AnyPath
from trainables.common.vectors import unit
from trainables.data.loading import ImagesInMemory, load
from trainables.inference.embedder import Embedder, given_features
from trainables.inference.given_images import decoded
from trainables.models.backbones import backbone
from trainables.models.embedding import EmbeddingModel

TOLERANCE = 1e-5
"""Largest accepted difference between a program's embeddings, of length 1, and the model's. Another order of
summation changes them by about 1e-7."""

BATCHES = (1, 7)
INPUT = "images"  # of the ONNX program, for features too
FILE = "model.onnx"
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True, kw_only=True)
class Program:
    """The result of the export: ``file`` was written, or ``reason`` says why not.

    ``difference`` is the largest absolute difference from the model's embeddings; None if the program could not be run.
    """

    form: str = "ONNX"
    file: str = FILE
    difference: float | None = None
    reason: str | None = None


class _UnitLength(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return unit(self.network(images))


def write_program(folder: AnyPath, embedder: Embedder, images: Sequence[np.ndarray]) -> Program:
    """Write ``model.onnx`` into ``folder`` after checking that it embeds as the model does; else remove such a file.

    The comparison uses the first seven of ``images``, at least one: uint8 [H, W, 3], or features, float32 [F].
    """
    if missing := [package for package in ONNX_PACKAGES if find_spec(package) is None]:
        program = Program(reason=f"not installed: {', '.join(missing)}; pip install {' '.join(ONNX_PACKAGES)}")
    else:
        # A GPU may round the factors of convolutions to 10 bits (TF32), so the comparison runs on the CPU.
        model = Embedder(_network_of(embedder), embedder.spec, embedder.card, torch.device("cpu"))
        chosen = [[images[at % len(images)] for at in range(batch)] for batch in BATCHES]
        try:
            content = onnx_bytes(model)
            difference = max(_difference(content, model, of_batch) for of_batch in chosen)
        except Exception as error:  # a user-defined network can make the exporter raise anything
            first_line = str(error).strip().partition("\n")[0]
            program = Program(reason=f"ONNX does not support this network ({type(error).__name__}: {first_line})")
        else:
            if difference <= TOLERANCE:
                write_whole(folder / FILE, lambda file: file.write(content))
                return Program(difference=difference)
            reason = f"its embeddings differ by {difference:.1g}, more than {TOLERANCE:g}"
            program = Program(difference=difference, reason=reason)
    (folder / FILE).unlink(missing_ok=True)
    return program


def _network_of(embedder: Embedder) -> EmbeddingModel:
    """Return a copy of the network on the CPU; deepcopy would lose a hook of torchvision's networks."""
    network = EmbeddingModel(replace(embedder.spec.model, weights=None))
    network.load_state_dict(embedder.network.state_dict())
    return network


def _as_input(model: Embedder, images: Sequence[np.ndarray]) -> Tensor:
    """Return the network's input, float32 [B, 3, S, S] or features [B, F]."""
    if model.network.on_vectors:
        return given_features(images, model.spec.model)
    images_B = ImagesInMemory([decoded(image, model.spec.decoded_side) for image in images])
    return load(images_B, torch.arange(len(images)), "none", model.spec.frame, device=model.device)


def onnx_bytes(model: Embedder, *, raw: bool = False) -> bytes:
    """Return the content of the ONNX program of ``model``; its embeddings have the length 1 unless they are ``raw``."""
    # Channels-last weights are saved with a warning, and the reader gains nothing from them.
    network = _network_of(model) if raw else _UnitLength(_network_of(model))
    network.eval().requires_grad_(False).to(memory_format=torch.contiguous_format)
    side = model.spec.frame.side
    shape = (backbone(model.spec.model.backbone).features,) if model.network.on_vectors else (3, side, side)
    # A batch of 1 would be specialised to a constant.
    exported = torch.export.export(network, (torch.zeros(2, *shape),), dynamic_shapes=({0: Dim("batch")},))
    for node in exported.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    program = torch.onnx.export(
        exported, dynamo=True, verbose=False,
        input_names=[INPUT], output_names=["embeddings"], dynamic_shapes=({0: "batch"},),
    )  # fmt: skip
    assert program is not None
    return program.model_proto.SerializeToString()


def _difference(content: bytes, model: Embedder, images: Sequence[np.ndarray]) -> float:
    """Return the largest difference of the program's embeddings of ``images`` from the model's, infinite for NaN."""
    from onnxruntime import InferenceSession

    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    (found_BD,) = session.run(None, {INPUT: _as_input(model, images).numpy()})
    expected_BD = model.embed(images, batch_size=len(images))
    return float(np.nan_to_num(np.abs(found_BD - expected_BD), nan=np.inf).max())
