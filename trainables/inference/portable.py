"""Export of a model's network to programs that run without this package: ``torch.export`` and ONNX.

Both take float32 images [B, 3, S, S] in 0 … 1, already resized and cropped, or features [B, F], for any B, and return
embeddings [B, D] of length 1; they include the normalisation of colours and of embeddings.

``torch.export.load`` may unpickle, so loading an untrusted file can run any code. Here it only reads back, from memory,
what was just written.

Shapes: B images of a batch, S pixels a side, D embedding dimensions.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from trainables.data.loading import ImagesInMemory, load
from trainables.files import write_whole
from trainables.inference.embedder import Embedder
from trainables.inference.features import given_features
from trainables.inference.images import decoded
from trainables.models.backbones import backbone
from trainables.models.embedding import EmbeddingModel
from trainables.storage import AnyPath
from trainables.unit import unit

TOLERANCE = 1e-5
"""Largest accepted difference between a program's embeddings, of length 1, and the model's. Another order of
summation changes them by about 1e-7."""

BATCHES = (1, 7)
INPUT = "images"
"""The name of the ONNX program's input, for features too."""

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True, kw_only=True)
class Program:
    """The result of exporting to one form: ``file`` was written, or ``reason`` says why not.

    ``difference`` is the largest absolute difference from the model's embeddings; None if the program could not be run.
    """

    form: str
    file: str
    difference: float | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Form:
    """An export form: ``write`` produces the content of ``file``, ``read`` a function that embeds a batch."""

    name: str
    file: str
    write: Callable[[ExportedProgram], bytes]
    read: Callable[[bytes], Callable[[Tensor], NDArray[np.float32]]]
    packages: tuple[str, ...] = ()


class _UnitLength(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return unit(self.network(images))


def write_programs(folder: AnyPath, embedder: Embedder, images: Sequence[np.ndarray]) -> tuple[Program, ...]:
    """Write ``model.pt2`` and ``model.onnx`` into ``folder``, each after checking that it embeds as the model does.

    If a form fails, an existing file of its name is removed.

    Args:
        folder: a path or a URL.
        embedder: the model.
        images: real images for the comparison, uint8 [H, W, 3], or features, float32 [F], at least one; the first
            seven are used.

    Returns:
        The result of each form, in this order.
    """
    # A GPU may round the factors of convolutions to 10 bits (TF32), so the comparison runs on the CPU.
    model = Embedder(_network_of(embedder), embedder.spec, embedder.card, torch.device("cpu"))
    chosen = [[images[at % len(images)] for at in range(batch)] for batch in BATCHES]
    checks = [(_as_input(model, of_batch), model.embed(of_batch, batch_size=len(of_batch))) for of_batch in chosen]
    exported: ExportedProgram | str
    try:
        exported = _exported(model)
    except Exception as error:  # a user-defined network can make the exporter raise anything
        exported = _reason("torch.export", error)
    programs = []
    for form in FORMS:
        program, content = _made(form, exported, checks)
        programs.append(program)
        if program.reason is None:
            write_whole(folder / form.file, lambda file, content=content: file.write(content))  # type: ignore[misc]
        else:
            (folder / form.file).unlink(missing_ok=True)
    return tuple(programs)


def _network_of(embedder: Embedder) -> EmbeddingModel:
    """Return a copy of the network on the CPU; deepcopy would lose a hook of torchvision's networks."""
    network = EmbeddingModel(replace(embedder.spec.model, weights=None))
    network.load_state_dict(embedder.network.state_dict())
    return network


def _as_input(model: Embedder, images: Sequence[np.ndarray]) -> Tensor:
    """Return the network's input for ``images``, float32 [B, 3, S, S], or features [B, F]."""
    if model.network.on_vectors:
        return given_features(images, model.spec.model)
    images_B = ImagesInMemory([decoded(image, model.spec.decoded_side) for image in images])
    return load(images_B, torch.arange(len(images)), "none", model.spec.frame, device=model.device)


def _made(
    form: _Form, exported: ExportedProgram | str, checks: Sequence[tuple[Tensor, NDArray[np.float32]]]
) -> tuple[Program, bytes]:
    """Export to one form; return the result and the content of its file, which is empty if there is a reason."""

    def without_file(reason: str, difference: float | None = None) -> tuple[Program, bytes]:
        return Program(form=form.name, file=form.file, difference=difference, reason=reason), b""

    if isinstance(exported, str):
        return without_file(exported)
    if missing := [package for package in form.packages if find_spec(package) is None]:
        return without_file(f"not installed: {', '.join(missing)}; pip install {' '.join(form.packages)}")
    try:
        content = form.write(exported)
        embed = form.read(content)
        differences = [np.abs(embed(batch_B3SS) - expected_BD).max() for batch_B3SS, expected_BD in checks]
    except Exception as error:
        return without_file(_reason(form.name, error))
    difference = float(np.max(differences))
    if not difference <= TOLERANCE:  # also true for NaN
        return without_file(f"its embeddings differ by {difference:.1g}, more than {TOLERANCE:g}", difference)
    return Program(form=form.name, file=form.file, difference=difference), content


def _reason(exporter: str, error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{exporter} does not support this network ({type(error).__name__}: {first_line})"


def _exported(model: Embedder) -> ExportedProgram:
    # Channels-last weights are saved with a warning, and the reader gains nothing from them.
    network = _UnitLength(_network_of(model)).eval().requires_grad_(False).to(memory_format=torch.contiguous_format)
    side = model.spec.frame.side
    shape = (backbone(model.spec.model.backbone).features,) if model.network.on_vectors else (3, side, side)
    # The example input is stored in the file, hence zeros. A batch of 1 would be specialised to a constant.
    program = torch.export.export(network, (torch.zeros(2, *shape),), dynamic_shapes=({0: Dim("batch")},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    return program


def _pt2_bytes(exported: ExportedProgram) -> bytes:
    content = io.BytesIO()
    torch.export.save(exported, content)
    return content.getvalue()


def _read_pt2(content: bytes) -> Callable[[Tensor], NDArray[np.float32]]:
    network = torch.export.load(io.BytesIO(content)).module()
    return lambda batch_B3SS: network(batch_B3SS).numpy()


def _onnx_bytes(exported: ExportedProgram) -> bytes:
    program = torch.onnx.export(
        exported, dynamo=True, verbose=False,
        input_names=[INPUT], output_names=["embeddings"], dynamic_shapes=({0: "batch"},),
    )  # fmt: skip
    assert program is not None
    return program.model_proto.SerializeToString()


def _read_onnx(content: bytes) -> Callable[[Tensor], NDArray[np.float32]]:
    from onnxruntime import InferenceSession

    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda batch_B3SS: session.run(None, {INPUT: batch_B3SS.numpy()})[0]


FORMS = (
    _Form(name="torch.export", file="model.pt2", write=_pt2_bytes, read=_read_pt2),
    _Form(name="ONNX", file="model.onnx", write=_onnx_bytes, read=_read_onnx, packages=ONNX_PACKAGES),
)
