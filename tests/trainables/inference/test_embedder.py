"""A model embeds images of any form as its test does, bit for bit."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from support.refusals import sentences_of
from support.small_model import SmallModel

import holdout
from trainables.data.sets.folders import Folder
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.embedder import Embedder
from trainables.models.embedding import embed


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd") / "odd"
    folder.mkdir()
    random = np.random.default_rng(0)

    def noise(*shape: int) -> NDArray[np.uint8]:
        return random.integers(0, 256, shape, dtype=np.uint8)

    turned = Image.Exif()
    turned[274] = 6
    Image.fromarray(noise(30, 50)).save(folder / "grey.png")
    Image.fromarray(noise(40, 25, 3)).save(folder / "turned.jpg", exif=turned)
    Image.fromarray(noise(33, 33, 4)).save(folder / "transparent.png")
    Image.fromarray(random.integers(0, 2**16, (40, 30), dtype=np.uint16)).save(folder / "deep.png")
    Image.fromarray(noise(1, 1, 3)).save(folder / "tiny.png")
    Image.fromarray(noise(3, 400, 3)).save(folder / "long.png")
    Image.fromarray(noise(900, 20, 3)).save(folder / "high.png")
    Image.fromarray(noise(64, 80, 3)).convert("P").save(folder / "palette.png")
    Image.fromarray(noise(64, 80, 3)).convert("CMYK").save(folder / "cmyk.jpg")
    return folder


def in_the_test(model: Embedder, folder: Path, cache: Path) -> tuple[list[Path], NDArray[np.float32]]:
    """Return a folder's images and their embeddings, computed by the store and the loop of the test."""
    dataset = Folder(root=str(folder))
    names = tuple(dataset.classes())
    spec = StoreSpec(dataset=dataset, class_names=names, short_side=model.spec.decoded_side, cache=str(cache))
    images = spec.open().subset(names)
    size, cpu = model.spec.batch_size, torch.device("cpu")
    raw = embed(model.network, images, model.spec.frame, batch_size=size, device=cpu, precision="float32")
    return [folder / key for key in images.image_keys], torch.nn.functional.normalize(raw).numpy()


def test_a_checkpoint_and_its_folder_are_one_model(made: SmallModel, model: Embedder) -> None:
    checkpoint = holdout.load(str(made.checkpoint), device="cpu")
    assert np.array_equal(checkpoint.embed(made.images), model.embed(made.images))
    assert checkpoint.spec == model.spec
    on_disk = hashlib.sha256((made.folder / "model.safetensors").read_bytes()).hexdigest()
    assert checkpoint.weights_sha256 == model.weights_sha256 == on_disk
    assert json.loads((made.folder / "model.json").read_text())["weights_sha256"] == on_disk
    assert (model.address, model.card, checkpoint.card) == (str(made.folder), "# A model\n", "")


@pytest.mark.parametrize("which", ["trained on", "odd"])
def test_every_form_of_an_image_is_embedded_as_in_the_test(
    which: str, made: SmallModel, odd: Path, model: Embedder, tmp_path: Path
) -> None:
    paths, expected = in_the_test(model, odd.parent if which == "odd" else made.images, tmp_path)
    assert len(paths) == (9 if which == "odd" else 60)
    assert np.array_equal(model.embed([str(path) for path in paths]), expected)
    assert np.array_equal(model.embed(path.read_bytes() for path in paths), expected)
    assert np.array_equal(model.embed([Image.open(path) for path in paths]), expected)
    if which == "trained on":
        arrays = [np.asarray(Image.open(path)) for path in paths]
        for given in (made.images, paths, arrays, np.stack(arrays)):
            assert np.array_equal(model.embed(given), expected)
        for one in (paths[3], str(paths[3]), paths[3].read_bytes(), Image.open(paths[3]), arrays[3]):
            np.testing.assert_allclose(model.embed(one), expected[[3]], atol=1e-6)
        grey = np.asarray(Image.open(paths[0]).convert("L"))
        assert np.array_equal(model.embed(grey), model.embed(np.stack([grey] * 3, axis=2)))


def test_unreadable_images_are_all_named_or_left_out(made: SmallModel, model: Embedder, tmp_path: Path) -> None:
    good = sorted(made.images.rglob("*.png"))[:3]
    note, cut, gone = bad = [tmp_path / name for name in ("note.jpg", "cut.png", "gone.png")]
    note.write_text("no image")
    cut.write_bytes(good[0].read_bytes()[:60])
    mixed = [good[0], note, good[1], cut, gone, good[2]]
    (sentence,) = sentences_of(model.embed, mixed)
    assert sentence.startswith("3 of 6 images cannot be read: ")
    assert all(f"{path} (" in sentence for path in bad)
    found = model.embed_readable(mixed)
    assert found.positions_N.tolist() == [0, 2, 5]
    assert [image.key for image in found.unreadable] == [*map(str, bad)]
    assert np.array_equal(found.embeddings_ND, model.embed(good))


def test_what_is_no_image_is_said_in_a_sentence(model: Embedder) -> None:
    for images, sentence in (
        ([], "There is no image to embed: give at least one."),
        (5, "images is 5, which is not an image and not iterable; give paths or arrays."),
        ([None], "image 0 (it is a NoneType, not a path, bytes, PIL image or array)"),
        (np.zeros((4, 4, 3)), "it is float64 of 4 × 4 × 3"),
        ("no-such-folder", "There is no image and no folder 'no-such-folder'."),
    ):
        (said,) = sentences_of(model.embed, images)
        assert sentence in said
