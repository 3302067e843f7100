"""Every kind of image file is read as displayed."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets.folder import IMG_EXTENSIONS

from trainables.data.images import FORMATS, IMAGE_SUFFIXES, read_image

HEIGHT, WIDTH = 12, 20
RAMP = np.linspace(0, 255, HEIGHT * WIDTH).round().astype(np.uint8).reshape(HEIGHT, WIDTH)
DEEP = (RAMP.astype(np.uint16) * 257).astype(np.uint16)


COLOURS = np.stack([RAMP, RAMP[::-1], RAMP[:, ::-1]], axis=2)
PALETTE = np.array([[10, 20, 30], [250, 0, 0], [0, 250, 0], [0, 0, 250]])


def grey(values: np.ndarray) -> np.ndarray:
    return np.repeat(values[..., None], 3, axis=2)


def on_white(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    opacity = alpha[..., None] / 255
    return colour * opacity + 255 * (1 - opacity)


def of_palette() -> Image.Image:
    image = Image.fromarray(RAMP // 64)
    image.putpalette(PALETTE.flatten().tolist())
    return image


BIG_ENDIAN = Image.frombytes("I;16B", (WIDTH, HEIGHT), DEEP.astype(">u2").tobytes())
INKS = Image.merge("CMYK", [Image.fromarray(np.full_like(RAMP, value)) for value in (0, 128, 255, 51)])


def saved(image: Image.Image, path: Path, **options: object) -> np.ndarray:
    image.save(path, **({"lossless": True, "exact": True} if path.suffix == ".webp" else {}), **options)
    found = read_image(path)
    assert found.dtype == np.uint8
    assert found.flags["C_CONTIGUOUS"]
    return found


def test_the_suffixes_are_torchvisions_and_pillows() -> None:
    Image.init()
    pillows = {suffix for suffix, form in Image.EXTENSION.items() if form in FORMATS}
    assert set(IMG_EXTENSIONS) | pillows - {".pfm"} == IMAGE_SUFFIXES


ALPHA = RAMP.T.reshape(HEIGHT, WIDTH)
MANY = np.arange(0, 65536, 13).astype(np.uint16)[:5040].reshape(70, 72)
ONE = (COLOURS[3, 4] == COLOURS).all(axis=2)
ROWS: dict[str, tuple[Image.Image, str, np.ndarray, float, dict[str, Any]]] = {
    "colours": (Image.fromarray(COLOURS), "png tiff bmp ppm webp", COLOURS, 0, {}),
    "JPEG": (Image.fromarray(COLOURS), "jpg", COLOURS, 11, {"quality": 100, "subsampling": 0}),
    "grey": (Image.fromarray(RAMP), "png tif pgm", grey(RAMP), 0, {}),
    "16-bit grey is scaled, not clipped": (Image.fromarray(DEEP), "png tiff pgm", grey(RAMP), 0, {}),
    "16-bit grey rounds to the nearest": (Image.fromarray(MANY), "png", grey(np.floor(MANY / 257 + 0.5)), 0, {}),
    "big-endian 16-bit grey": (BIG_ENDIAN, "tiff", grey(RAMP), 0, {}),
    "counted from white": (Image.fromarray(DEEP), "tiff", grey(255 - RAMP), 0, {"tiffinfo": {262: 0}}),
    "1 bit": (Image.fromarray(RAMP > 127), "png tiff", grey(np.where(RAMP > 127, 255, 0)), 0, {}),
    "colours with alpha": (
        Image.fromarray(np.dstack([COLOURS, ALPHA])), "png webp tiff", on_white(COLOURS, ALPHA), 1, {}),
    "grey with alpha": (
        Image.fromarray(np.dstack([RAMP, RAMP[::-1]])), "png", on_white(grey(RAMP), RAMP[::-1]), 1, {}),
    "palette": (of_palette(), "png bmp tiff", PALETTE[RAMP // 64], 0, {}),
    "palette with a transparent colour": (
        of_palette(), "png", on_white(PALETTE[RAMP // 64], np.array([255, 0, 255, 255])[RAMP // 64]), 1,
        {"transparency": 1}),
    "palette with opacities": (
        of_palette(), "png", on_white(PALETTE[RAMP // 64], np.array([255, 0, 128, 255])[RAMP // 64]), 1,
        {"transparency": bytes([255, 0, 128, 255])}),
    "one transparent colour": (
        Image.fromarray(COLOURS), "png", np.where(ONE[..., None], 255, COLOURS), 0,
        {"transparency": tuple(COLOURS[3, 4].tolist())}),
    "CMYK": (INKS, "jpg tiff", np.broadcast_to(np.array([255, 127, 0]) * (255 - 51) / 255, COLOURS.shape), 4, {}),
}  # fmt: skip
"""What is saved, in which formats, what is read, to how many grey levels, and Pillow's options."""


@pytest.mark.parametrize(("name", "suffix"), [(name, suffix) for name in ROWS for suffix in ROWS[name][1].split()])
def test_every_kind_of_image(tmp_path: Path, name: str, suffix: str) -> None:
    image, _, expected, levels, options = ROWS[name]
    found = saved(image, tmp_path / f"image.{suffix}", **options)
    assert found.shape == expected.shape
    assert np.abs(found - expected.astype(float)).max() <= levels


UPRIGHT = {  # EXIF orientation → transformation of the stored pixels for display
    1: lambda pixels: pixels,
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: pixels[::-1, ::-1].swapaxes(0, 1),
    8: lambda pixels: np.rot90(pixels, 1),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
def test_exif_orientation(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    for values, pixels in ((DEEP, grey(RAMP)), (COLOURS, COLOURS)):
        found = saved(Image.fromarray(values), tmp_path / "image.png", exif=exif)
        assert np.array_equal(found, UPRIGHT[orientation](pixels))
    for values, compression in product((RAMP, DEEP), (None, "tiff_lzw")):
        tags = {"tiffinfo": {274: orientation}, "compression": compression}
        found = saved(Image.fromarray(values), tmp_path / "image.tiff", **tags)
        assert np.array_equal(found, UPRIGHT[orientation](grey(RAMP)))
