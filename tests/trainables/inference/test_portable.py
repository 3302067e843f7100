"""Exported networks embed as the model does; if an export fails, there is a reason and no file."""

import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnxruntime import InferenceSession

from trainables.data import Frame
from trainables.inference.embedder import Embedder
from trainables.inference.model_files import EmbedderSpec
from trainables.inference.portable import ONNX_PACKAGES, TOLERANCE, write_program
from trainables.models.backbones import BACKBONES
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel

SIDE = 64
ONNX = "model.onnx"


def embedder_of(backbone: str, **changes: object) -> Embedder:
    torch.manual_seed(0)
    model = ModelConfig(backbone=backbone, embedding_dim=8, **changes)  # type: ignore[arg-type]
    frame = Frame(side=SIDE, short_side=SIDE)
    spec = EmbedderSpec(model=model, decoded_side=SIDE, frame=frame, batch_size=8, origin={})
    return Embedder(EmbeddingModel(model), spec, "", torch.device("cpu"))


@pytest.fixture(scope="module")
def images() -> list[np.ndarray]:
    """Return three noise images of the input size, so that the input is the array divided by 255."""
    generator = np.random.default_rng(0)
    return [generator.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(3)]


@pytest.mark.parametrize(
    "backbone",  # the larger ones take up to a minute each
    [pytest.param(name, marks=() if name == "convnet" else pytest.mark.slow) for name in BACKBONES],
)
def test_onnx_embeds_as_the_model_whatever_its_backbone(
    backbone: str, images: list[np.ndarray], tmp_path: Path
) -> None:
    embedder = embedder_of(backbone, layer_norm=True)
    written = write_program(tmp_path, embedder, images)
    assert (written.file, written.reason) == (ONNX, None)
    assert written.difference is not None
    assert written.difference <= TOLERANCE

    batch = np.stack([image.transpose(2, 0, 1) for image in images]).astype(np.float32) / 255
    session = InferenceSession((tmp_path / ONNX).read_bytes(), providers=["CPUExecutionProvider"])
    (of_onnx,) = session.run(["embeddings"], {"images": batch})
    np.testing.assert_allclose(of_onnx, embedder.embed(images), atol=TOLERANCE)

    installed = str(Path(torch.__file__).parents[1]).encode()
    assert not any(place in (tmp_path / ONNX).read_bytes() for place in (installed, b"/home/"))

    program = onnx.load(tmp_path / ONNX)
    onnx.checker.check_model(program, full_check=True)
    (taken,), (given,) = program.graph.input, program.graph.output
    shapes = [[dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in (taken, given)]
    assert (taken.name, given.name, shapes) == ("images", "embeddings", [["batch", 3, SIDE, SIDE], ["batch", 8]])


@pytest.mark.parametrize(
    ("backbone", "reason"),
    [
        ("support.odd_networks:Branching", r"ONNX does not support this network \(.*"),
        ("support.odd_networks:Noisy", "its embeddings differ by .*, more than 1e-05"),
        ("convnet", "not installed: onnxscript; pip install onnx onnxscript onnxruntime"),
    ],
)
def test_what_cannot_be_exported_has_a_reason_and_no_file(
    backbone: str, reason: str, images: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ONNX).write_bytes(b"of another model")
    if backbone == "convnet":
        monkeypatch.setitem(sys.modules, ONNX_PACKAGES[1], None)  # marks the package as not importable
    program = write_program(tmp_path, embedder_of(backbone), images)
    assert program.reason is not None
    assert re.fullmatch(reason, program.reason)
    assert (program.difference or 0) > TOLERANCE if backbone.endswith("Noisy") else program.difference is None
    assert not list(tmp_path.iterdir())
