"""Images decoded once have the same embeddings, bit for bit, as their files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trainables.data.augment import AUGMENTATIONS, Frame
from trainables.data.loading import ImagesInMemory
from trainables.data.sets.folders import Folder
from trainables.data.store.build import build_store
from trainables.data.store.view import Store
from trainables.inference.embedder import Embedder
from trainables.inference.images import decoded
from trainables.inference.model_files import EmbedderSpec
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel

SHORT_SIDE = 18
SIZES = [(40, 30), (18, 18), (25, 50), (10, 12), (60, 19), (18, 44)]  # larger, equal, and smaller than the short side


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    generator = np.random.default_rng(0)
    (tmp_path / "images" / "all").mkdir(parents=True)
    files = [tmp_path / "images" / "all" / f"{number}.png" for number in range(len(SIZES))]
    for file, (height, width) in zip(files, SIZES, strict=True):
        Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file)
    return files


@pytest.fixture
def store(paths: list[Path], tmp_path: Path) -> Store:
    dataset = Folder(root=str(tmp_path / "images"))
    return Store.open(build_store(dataset, ["all"], short_side=SHORT_SIDE, cache=tmp_path / "cache", workers=1))


@pytest.mark.parametrize("batch_size", [1, 4, 6])
def test_a_store_embeds_as_the_files(paths: list[Path], store: Store, batch_size: int) -> None:
    model = ModelConfig(embedding_dim=8)
    frame = Frame(side=16, short_side=SHORT_SIDE)
    spec = EmbedderSpec(model=model, decoded_side=SHORT_SIDE, frame=frame, batch_size=5, origin={})
    embedder = Embedder(EmbeddingModel(model), spec, "", torch.device("cpu"))
    of_files = embedder.embed(paths, batch_size=batch_size)
    of_store = embedder.embed_decoded(store.subset(["all"]), batch_size=batch_size)
    assert of_files.shape == (len(SIZES), 8)
    np.testing.assert_array_equal(of_store, of_files)
    np.testing.assert_array_equal(np.linalg.norm(of_store, axis=1).round(5), np.ones(len(SIZES)))


@pytest.mark.parametrize("augmentation", AUGMENTATIONS.rows)
def test_images_in_memory_are_cut_as_a_store_s(paths: list[Path], store: Store, augmentation: str) -> None:
    images = ImagesInMemory([decoded(path, SHORT_SIDE) for path in paths])
    assert len(images) == len(store)
    indices = torch.tensor([4, 0, 3, 2, 2])
    torch.testing.assert_close(images.sizes(indices), store.sizes_N2[indices])
    frame = Frame(side=16, short_side=SHORT_SIDE)
    crops = AUGMENTATIONS[augmentation](images.sizes(indices), frame, torch.Generator().manual_seed(0))
    pixels = images.gather(indices, crops.windows_B4)
    torch.testing.assert_close(pixels, store.gather(indices, crops.windows_B4), rtol=0, atol=0)
    whole = [decoded(paths[index], SHORT_SIDE) for index in indices.tolist()]
    for row, (top, left, tall, wide) in enumerate(crops.windows_B4.tolist()):
        expected = whole[row][top : top + tall, left : left + wide].transpose(1, 0, 2)
        np.testing.assert_array_equal(pixels[row, :wide, :tall].numpy(), expected)
