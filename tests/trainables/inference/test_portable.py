"""Exported networks embed as the model does; if an export fails, there is a reason and no file."""

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
SMALL = ("convnet",)
"""The backbones exported in every run; the others take up to a minute each."""
ONNX = "model.onnx"


def embedder_of(backbone: str, **changes: object) -> Embedder:
    """Return a model with random weights."""
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
    "backbone", [pytest.param(name, marks=pytest.mark.slow if name not in SMALL else ()) for name in BACKBONES]
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


def test_a_network_that_cannot_be_followed_has_no_file(images: list[np.ndarray], tmp_path: Path) -> None:
    (tmp_path / ONNX).write_bytes(b"of another model")
    program = write_program(tmp_path, embedder_of("support.odd_networks:Branching"), images)
    assert program.difference is None
    assert program.reason is not None
    assert program.reason.startswith("ONNX does not support this network (")
    assert not list(tmp_path.iterdir())


def test_a_program_that_embeds_otherwise_is_not_written(images: list[np.ndarray], tmp_path: Path) -> None:
    program = write_program(tmp_path, embedder_of("support.odd_networks:Noisy"), images)
    assert program.difference is not None
    assert program.difference > TOLERANCE
    assert program.reason is not None
    assert program.reason.endswith("more than 1e-05")
    assert not list(tmp_path.iterdir())


def test_without_the_packages_of_onnx_they_are_named(
    images: list[np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, ONNX_PACKAGES[1], None)  # marks the package as not importable
    program = write_program(tmp_path, embedder_of("convnet"), images)
    assert program.reason == "not installed: onnxscript; pip install onnx onnxscript onnxruntime"
    assert not list(tmp_path.iterdir())
