"""Batched augmentation, against torchvision image by image."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

from trainables.data.augment import ASPECT, AUGMENTATIONS, augment, resized_crop_flip, short_side_needed
from trainables.data.resample import Crops, resample

SIZES = [(40, 40), (37, 61), (90, 33), (24, 24), (16, 70)]


def images_and_batch(sizes: list[tuple[int, int]], beyond: int = 0) -> tuple[list[Tensor], Tensor, Tensor]:
    """Random images, the same as one padded batch (``beyond`` fills what lies beyond them), and their sizes."""
    random = np.random.default_rng(0)
    images = [torch.from_numpy(random.integers(0, 256, (3, *size), dtype=np.uint8)) for size in sizes]
    height, width = (max(size[axis] for size in sizes) for axis in (0, 1))
    batch = torch.full((len(sizes), 3, height, width), beyond, dtype=torch.uint8)
    for row, image in zip(batch, images):
        row[:, : image.shape[1], : image.shape[2]] = image
    return images, batch, torch.tensor(sizes)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("side", [8, 24, 50])
@pytest.mark.parametrize("flip", [False, True])
def test_resample_agrees_with_torchvisions_resized_crop(side: int, flip: bool) -> None:
    images, batch, _ = images_and_batch(SIZES, beyond=255)
    random = np.random.default_rng(1)
    boxes = []
    for height, width in SIZES:
        tall, wide = random.integers(1, height + 1), random.integers(1, width + 1)
        top, left = random.integers(0, height - tall + 1), random.integers(0, width - wide + 1)
        boxes.append([int(value) for value in (top, left, tall, wide)])
    boxes_B4 = torch.tensor(boxes)
    flips = torch.full((len(SIZES),), flip)
    found = resample(batch, Crops(boxes_B4=boxes_B4, reach_B4=boxes_B4, flips_B=flips), side)
    for image, box, row in zip(images, boxes, found):
        expected = F.resized_crop(image.float() / 255, *box, [side, side], antialias=True)
        close(row, expected.flip(2) if flip else expected)


def test_resample_agrees_with_pillow_to_a_grey_level() -> None:
    images, batch, sizes = images_and_batch(SIZES)
    boxes_B4 = torch.cat([torch.zeros_like(sizes), sizes], dim=1)
    found = resample(batch, Crops(boxes_B4=boxes_B4, reach_B4=boxes_B4, flips_B=torch.zeros(5, dtype=bool)), 20)
    for image, row in zip(images, found):
        small = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((20, 20), Image.Resampling.BILINEAR)
        expected = torch.from_numpy(np.array(small)).permute(2, 0, 1)
        assert (row * 255 - expected).abs().max() <= 1.01  # Pillow rounds twice


def test_boxes_of_the_outputs_size_give_the_exact_pixels() -> None:
    images, batch, _ = images_and_batch(SIZES, beyond=255)
    boxes_B4 = torch.tensor([[0, 0, 16, 16], [3, 5, 16, 16], [70, 1, 16, 16], [8, 8, 16, 16], [0, 54, 16, 16]])
    found = resample(batch, Crops(boxes_B4=boxes_B4, reach_B4=boxes_B4, flips_B=torch.zeros(5, dtype=bool)), 16)
    for image, (top, left, _, _), row in zip(images, boxes_B4.tolist(), found):
        assert torch.equal(row, image[:, top : top + 16, left : left + 16].float() / 255)


@pytest.mark.parametrize("image_size", [14, 32, 56])
def test_none_is_torchvisions_resize_and_centre_crop(image_size: int) -> None:
    images, batch, sizes = images_and_batch(SIZES, beyond=128)
    found = augment("none", batch, sizes, image_size)
    short = round(image_size * 256 / 224)
    transform = v2.Compose([v2.Resize(short, antialias=True), v2.CenterCrop(image_size)])
    for image, row in zip(images, found):
        close(row, transform(image.float() / 255))


def test_crop_flip_is_a_crop_of_torchvisions_resize() -> None:
    images, batch, sizes = images_and_batch(SIZES, beyond=128)
    generator = torch.Generator().manual_seed(0)
    found = augment("crop_flip", batch, sizes, 28, generator=generator)
    generator.manual_seed(0)
    for image, row in zip(images, found):
        resized = F.resize(image.float() / 255, [32], antialias=True)
        windows = torch.cat([resized.unfold(1, 28, 1).unfold(2, 28, 1).flatten(1, 2)] * 2, dim=1)
        windows[:, windows.shape[1] // 2 :] = windows[:, windows.shape[1] // 2 :].flip(3)
        assert (windows - row[:, None]).abs().amax(dim=(0, 2, 3)).min() < 2e-4


def test_crop_flip_reaches_every_place_and_mirrors_half() -> None:
    sizes = torch.tensor([[32, 34]]).expand(4000, 2)
    crops = AUGMENTATIONS["crop_flip"].crops(sizes, 28, torch.Generator().manual_seed(0))
    places, counts = crops.boxes_B4[:, :2].unique(dim=0, return_counts=True)
    assert len(places) == 5 * 7  # 32 − 28 + 1 rows, 34 − 28 + 1 columns
    assert counts.min() > 60
    assert 0.46 < crops.flips_B.float().mean() < 0.54


@pytest.mark.parametrize("size", [(64, 64), (50, 120)])
def test_resized_crops_are_distributed_as_torchvisions(size: tuple[int, int]) -> None:
    count = 3000
    torch.manual_seed(0)
    image = torch.zeros(3, *size)
    get_params = v2.RandomResizedCrop(8).make_params
    expected = [get_params([image]) for _ in range(count)]
    theirs = np.array([[draw[name] for name in ("top", "left", "height", "width")] for draw in expected])
    crops = resized_crop_flip(torch.tensor([size]).expand(count, 2), 8, torch.Generator().manual_seed(1))
    ours = crops.boxes_B4.numpy()
    for column in range(4):  # two-sample Kolmogorov–Smirnov at about 0.001
        values = np.unique(np.concatenate([ours[:, column], theirs[:, column]]))
        cumulated = [(np.searchsorted(np.sort(draws[:, column]), values, "right") / count) for draws in (ours, theirs)]
        assert np.abs(cumulated[0] - cumulated[1]).max() < 1.95 * np.sqrt(2 / count)
    assert 0.46 < crops.flips_B.float().mean() < 0.54


def test_resized_crops_of_images_too_long_fall_back_to_the_centre() -> None:
    sizes = torch.tensor([[4, 400], [400, 4]])
    boxes = resized_crop_flip(sizes.repeat(200, 1), 8, torch.Generator().manual_seed(0)).boxes_B4
    wide = boxes[::2]
    fallback = wide[wide[:, 3] == round(4 * ASPECT[1])]
    assert len(fallback) > 0
    assert (fallback[fallback[:, 2] == 4][:, 1] == (400 - 5) // 2).any()
    assert (boxes[:, :2] + boxes[:, 2:] <= sizes.repeat(200, 1)).all()


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_every_augmentation(name: str) -> None:
    _, black_beyond, sizes = images_and_batch(SIZES, beyond=0)
    _, white_beyond, _ = images_and_batch(SIZES, beyond=255)
    draw = {seed: torch.Generator().manual_seed(seed) for seed in (0, 1)}
    first = augment(name, black_beyond, sizes, 24, generator=draw[0])
    assert first.shape == (5, 3, 24, 24)
    assert first.dtype == torch.float32
    assert first.min() >= 0
    assert first.max() <= 1 + 1e-6
    assert torch.equal(first, augment(name, white_beyond, sizes, 24, generator=draw[0].manual_seed(0)))
    if name != "none":
        assert not torch.equal(first, augment(name, black_beyond, sizes, 24, generator=draw[1]))
    assert AUGMENTATIONS[name].summary


def test_augmentation_ignores_autocast() -> None:
    _, batch, sizes = images_and_batch(SIZES)
    expected = augment("none", batch, sizes, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(augment("none", batch, sizes, 24), expected)


@pytest.mark.parametrize(
    ("name", "image_size", "store_size", "needed"),
    [
        ("none", 224, 512, 256),
        ("crop_flip", 32, 256, 37),
        ("crop_flip", 224, 100, 100),
        ("resized_crop_flip", 32, 256, 256),
    ],
)
def test_short_side_needed(name: str, image_size: int, store_size: int, needed: int) -> None:
    assert short_side_needed(name, image_size, store_size) == needed
