"""Batched augmentation agrees with torchvision image by image; prefetched batches are the same."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from support.image_stores import build_store
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from trainables.data import AUGMENTATIONS, Frame, short_side_needed
from trainables.data.dataset import Dataset
from trainables.data.loading import ASPECT, Crops, ImagesInMemory, load, one_ahead, resample, resized_crop_flip
from trainables.data.store.view import Store, StoreView

SIZES = [(40, 40), (37, 61), (90, 33), (24, 24), (16, 70)]


class Noise(Dataset):
    """One random image of each size, in two classes."""

    def classes(self) -> dict[str, tuple[str, ...]]:
        keys = tuple(map(str, range(len(SIZES))))
        return {"a": keys[:2], "b": keys[2:]}

    def identity(self) -> str:
        return "noise"

    def stamp(self, key: str) -> str:
        return key

    def read(self, key: str) -> np.ndarray:
        return np.random.default_rng(int(key)).integers(0, 256, (*SIZES[int(key)], 3), dtype=np.uint8)


IMAGES = [torch.from_numpy(Noise().read(str(key))).permute(2, 0, 1) for key in range(len(SIZES))]
ALL = torch.arange(len(SIZES))
loaded = partial(load, device=torch.device("cpu"))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> StoreView:
    cache = tmp_path_factory.mktemp("noise")
    return Store(build_store(Noise(), "ab", short_side=1000, cache=cache)).subset("ab")


def seen(view: StoreView, crops: Crops) -> Tensor:
    return resample(view.gather(ALL, crops.windows_B4), crops)


def frame(side: int, short_side: int | None = None, square: bool = False) -> Frame:
    return Frame(side=side, short_side=short_side or round(side * 256 / 224), square=square)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("side", [8, 24, 50])
@pytest.mark.parametrize("flip", [False, True])
def test_resample_agrees_with_torchvisions_resized_crop(view: StoreView, side: int, flip: bool) -> None:
    random = np.random.default_rng(1)
    sizes = random.integers(1, np.array(SIZES) + 1)
    boxes_B4 = torch.from_numpy(np.concatenate([random.integers(0, np.array(SIZES) - sizes + 1), sizes], axis=1))
    flips = torch.full((len(SIZES),), flip)
    found = seen(view, Crops(boxes_B4=boxes_B4, reach_B4=boxes_B4, flips_B=flips, side=side))
    for image, box, row in zip(IMAGES, boxes_B4.tolist(), found):
        expected = F.resized_crop(image.float() / 255, *box, [side, side], antialias=True)
        close(row, expected.flip(2) if flip else expected)


@pytest.mark.parametrize("reaches", ["box", "image"])
def test_boxes_of_the_outputs_size_give_the_exact_pixels(view: StoreView, reaches: str) -> None:
    boxes_B4 = torch.tensor([[0, 0, 16, 16], [3, 5, 16, 16], [70, 1, 16, 16], [8, 8, 16, 16], [0, 54, 16, 16]])
    whole_B4 = torch.cat([torch.zeros(5, 2, dtype=torch.int64), view.sizes(ALL)], dim=1)
    reach_B4 = boxes_B4 if reaches == "box" else whole_B4
    flips_B = torch.tensor([False, True, False, True, True])
    crops = Crops(boxes_B4=boxes_B4, reach_B4=reach_B4, flips_B=flips_B, side=16)
    assert crops.exact_B.all()
    for image, (top, left, _, _), flip, row in zip(IMAGES, boxes_B4.tolist(), flips_B, seen(view, crops)):
        expected = image[:, top : top + 16, left : left + 16].float() / 255
        assert torch.equal(row, expected.flip(2) if flip else expected)


@pytest.mark.parametrize("image_size", [14, 32, 56])
@pytest.mark.parametrize("short", [None, 60])
@pytest.mark.parametrize("square", [False, True])
def test_none_is_torchvisions_resize_and_centre_crop(
    view: StoreView, image_size: int, short: int | None, square: bool
) -> None:
    short = short or round(image_size * 256 / 224)
    found = loaded(view, ALL, "none", frame(image_size, short, square))
    transform = v2.Compose([v2.Resize([short, short] if square else short), v2.CenterCrop(image_size)])
    for image, row in zip(IMAGES, found):
        close(row, transform(image.float() / 255))


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize(("name", "mirrors"), [("crop", False), ("crop_flip", True)])
def test_random_crops_are_crops_of_torchvisions_resize(view: StoreView, name: str, mirrors: bool, square: bool) -> None:
    found = loaded(view, ALL, name, frame(28, square=square), generator=seeded(0))
    for image, row in zip(IMAGES, found):
        resized = F.resize(image.float() / 255, [32, 32] if square else [32], antialias=True)
        windows = resized.unfold(1, 28, 1).unfold(2, 28, 1).flatten(1, 2)
        if mirrors:
            windows = torch.cat([windows, windows.flip(3)], dim=1)
        assert (windows - row[:, None]).abs().amax(dim=(0, 2, 3)).min() < 2e-4


@pytest.mark.parametrize(("name", "mirrored"), [("crop", 0.0), ("crop_flip", 0.5)])
@pytest.mark.parametrize(("square", "places"), [(False, 5 * 7), (True, 5 * 5)])  # of 28 in 32 × 34, and in 32 × 32
def test_random_crops_reach_every_place(name: str, mirrored: float, square: bool, places: int) -> None:
    sizes = torch.tensor([[32, 34]]).expand(4000, 2)
    crops = AUGMENTATIONS[name](sizes, frame(28, square=square), seeded(0))
    offsets, counts = crops.boxes_B4[:, :2].unique(dim=0, return_counts=True)
    assert len(offsets) == places
    assert counts.min() > 60
    assert abs(crops.flips_B.float().mean() - mirrored) <= 0.04 * (mirrored > 0)


@pytest.mark.parametrize("size", [(64, 64), (50, 120)])
def test_resized_crops_are_distributed_as_torchvisions(size: tuple[int, int]) -> None:
    count = 3000
    torch.manual_seed(0)
    image = torch.zeros(3, *size)
    get_params = v2.RandomResizedCrop(8).make_params
    expected = [get_params([image]) for _ in range(count)]
    theirs = np.array([[draw[name] for name in ("top", "left", "height", "width")] for draw in expected])
    crops = resized_crop_flip(torch.tensor([size]).expand(count, 2), frame(8), seeded(1))
    ours = crops.boxes_B4.numpy()
    for column in range(4):  # two-sample Kolmogorov–Smirnov at about 0.001
        values = np.unique(np.concatenate([ours[:, column], theirs[:, column]]))
        cumulated = [(np.searchsorted(np.sort(draws[:, column]), values, "right") / count) for draws in (ours, theirs)]
        assert np.abs(cumulated[0] - cumulated[1]).max() < 1.95 * np.sqrt(2 / count)
    assert 0.46 < crops.flips_B.float().mean() < 0.54


def test_resized_crops_of_images_too_long_fall_back_to_the_centre() -> None:
    sizes = torch.tensor([[4, 400], [400, 4]])
    boxes = resized_crop_flip(sizes.repeat(200, 1), frame(8), seeded(0)).boxes_B4
    wide = boxes[::2]
    fallback = wide[wide[:, 3] == round(4 * ASPECT[1])]
    assert len(fallback) > 0
    assert (fallback[fallback[:, 2] == 4][:, 1] == (400 - 5) // 2).any()
    assert (boxes[:, :2] + boxes[:, 2:] <= sizes.repeat(200, 1)).all()


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_augmentation(view: StoreView, name: str) -> None:
    """A CPU resamples chunks of similar images; each result is still at its image's index, whatever the autocast."""
    first, again, other = (loaded(view, ALL, name, frame(24), generator=seeded(seed)) for seed in (0, 0, 1))
    assert first.shape == (5, 3, 24, 24)
    assert first.dtype == torch.float32
    assert first.min() >= 0
    assert first.max() <= 1 + 1e-6
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name == "none")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loaded(view, ALL, name, frame(24), generator=seeded(0)), first)

    many = torch.randint(len(SIZES), (50,), generator=seeded(0))
    found = loaded(view, many, name, frame(112), generator=seeded(7))
    crops = AUGMENTATIONS[name](view.sizes(many), frame(112), seeded(7))
    close(found, resample(view.gather(many, crops.windows_B4), crops))


def test_short_side_needed() -> None:
    needed = [short_side_needed("crop_flip", frame(side), size) for side, size in ((32, 256), (224, 100))]
    needed += [short_side_needed("none", frame(224), 512), short_side_needed("resized_crop_flip", frame(32), 256)]
    assert needed == [37, 100, 256, 256]


def test_batches_made_ahead_draw_as_those_on_demand_and_an_error_is_raised_with_its_batch() -> None:
    def draws() -> Callable[[int], Tensor]:
        generator = seeded(5)
        return lambda size: torch.rand(size, generator=generator)

    ahead = one_ahead([*range(9), -1], draws())
    assert all(torch.equal(next(ahead), draw) for draw in map(draws(), range(9)))
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        next(ahead)


@pytest.mark.parametrize("augmentation", AUGMENTATIONS.rows)
def test_images_in_memory_are_cut_as_a_store_s(view: StoreView, augmentation: str) -> None:
    whole = [Noise().read(str(key)) for key in range(len(SIZES))]
    images, indices = ImagesInMemory(whole), torch.tensor([4, 0, 3, 2, 2])
    assert len(images) == len(view)
    assert torch.equal(images.sizes(indices), view.sizes(indices))
    crops = AUGMENTATIONS[augmentation](images.sizes(indices), frame(16), seeded(0))
    pixels = images.gather(indices, crops.windows_B4)
    assert torch.equal(pixels, view.gather(indices, crops.windows_B4))
    for row, (index, (top, left, tall, wide)) in enumerate(zip(indices.tolist(), crops.windows_B4.tolist())):
        expected = whole[index][top : top + tall, left : left + wide].transpose(1, 0, 2)
        np.testing.assert_array_equal(pixels[row, :wide, :tall].numpy(), expected)
