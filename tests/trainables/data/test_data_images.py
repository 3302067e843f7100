"""Every kind of image file is read as displayed."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets.folder import IMG_EXTENSIONS

from trainables.data.images import FORMATS, IMAGE_SUFFIXES, read_image

HEIGHT, WIDTH = 12, 20
RAMP = np.linspace(0, 255, HEIGHT * WIDTH).round().astype(np.uint8).reshape(HEIGHT, WIDTH)
DEEP = (RAMP.astype(np.uint16) * 257).astype(np.uint16)


def grey(values: np.ndarray) -> np.ndarray:
    return np.repeat(values[..., None], 3, axis=2)


def colours() -> np.ndarray:
    return np.stack([RAMP, RAMP[::-1], RAMP[:, ::-1]], axis=2)


def saved(image: Image.Image, path: Path, **options: object) -> np.ndarray:
    image.save(path, **options)
    found = read_image(path)
    assert found.dtype == np.uint8
    assert found.flags["C_CONTIGUOUS"]
    return found


def test_the_suffixes_are_torchvisions_and_pillows() -> None:
    Image.init()
    pillows = {suffix for suffix, form in Image.EXTENSION.items() if form in FORMATS}
    assert set(IMG_EXTENSIONS) | pillows - {".pfm"} == IMAGE_SUFFIXES


@pytest.mark.parametrize("suffix", ["png", "tiff", "bmp", "ppm", "webp"])
def test_rgb(tmp_path: Path, suffix: str) -> None:
    options = {"lossless": True} if suffix == "webp" else {}
    found = saved(Image.fromarray(colours()), tmp_path / f"image.{suffix}", **options)
    assert np.array_equal(found, colours())


def test_jpeg(tmp_path: Path) -> None:
    found = saved(Image.fromarray(colours()), tmp_path / "image.jpg", quality=100, subsampling=0)
    assert np.abs(found.astype(int) - colours()).max() < 12


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_grey(tmp_path: Path, suffix: str) -> None:
    assert np.array_equal(saved(Image.fromarray(RAMP), tmp_path / f"image.{suffix}"), grey(RAMP))


@pytest.mark.parametrize("suffix", ["png", "tiff", "pgm"])
def test_16_bit_grey_is_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    assert np.array_equal(saved(Image.fromarray(DEEP), tmp_path / f"image.{suffix}"), grey(RAMP))


def test_16_bit_grey_rounds_to_the_nearest(tmp_path: Path) -> None:
    values = np.arange(0, 65536, 13).astype(np.uint16)[:5040].reshape(70, 72)
    found = saved(Image.fromarray(values), tmp_path / "image.png")
    assert np.array_equal(found[..., 0], np.floor(values / 257 + 0.5))


def test_big_endian_16_bit_tiff(tmp_path: Path) -> None:
    image = Image.frombytes("I;16B", (WIDTH, HEIGHT), DEEP.astype(">u2").tobytes())
    assert np.array_equal(saved(image, tmp_path / "image.tiff"), grey(RAMP))


def test_tiff_that_counts_from_white(tmp_path: Path) -> None:
    path = tmp_path / "image.tiff"
    saved(Image.fromarray(DEEP), path, tiffinfo={262: 0})
    with Image.open(path) as image:
        assert image.tag_v2[262] == 0
    assert np.array_equal(read_image(path), grey(255 - RAMP))


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_1_bit(tmp_path: Path, suffix: str) -> None:
    found = saved(Image.fromarray(RAMP > 127), tmp_path / f"image.{suffix}")
    assert np.array_equal(found, grey(np.where(RAMP > 127, 255, 0)))


def on_white(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    opacity = alpha[..., None] / 255
    return colour * opacity + 255 * (1 - opacity)


@pytest.mark.parametrize("suffix", ["png", "webp", "tiff"])
def test_rgba_lies_on_white(tmp_path: Path, suffix: str) -> None:
    alpha = RAMP.T.reshape(HEIGHT, WIDTH)
    image = Image.fromarray(np.dstack([colours(), alpha]))
    options = {"lossless": True, "exact": True} if suffix == "webp" else {}
    found = saved(image, tmp_path / f"image.{suffix}", **options)
    assert np.abs(found - on_white(colours(), alpha)).max() <= 1


def test_grey_with_alpha_lies_on_white(tmp_path: Path) -> None:
    alpha = RAMP[::-1]
    found = saved(Image.fromarray(np.dstack([RAMP, alpha])), tmp_path / "image.png")
    assert np.abs(found - on_white(grey(RAMP), alpha)).max() <= 1


@pytest.mark.parametrize("suffix", ["png", "bmp", "tiff"])
def test_palette(tmp_path: Path, suffix: str) -> None:
    image = Image.fromarray(RAMP // 64)
    image.putpalette([10, 20, 30, 250, 0, 0, 0, 250, 0, 0, 0, 250])
    expected = np.array([[10, 20, 30], [250, 0, 0], [0, 250, 0], [0, 0, 250]])[RAMP // 64]
    assert np.array_equal(saved(image, tmp_path / f"image.{suffix}"), expected)


@pytest.mark.parametrize("transparency", [1, bytes([255, 0, 128, 255])])
def test_palette_with_transparency_lies_on_white(tmp_path: Path, transparency: int | bytes) -> None:
    image = Image.fromarray(RAMP // 64)
    image.putpalette([10, 20, 30, 250, 0, 0, 0, 250, 0, 0, 0, 250])
    colour = np.array([[10, 20, 30], [250, 0, 0], [0, 250, 0], [0, 0, 250]])[RAMP // 64]
    opacity = np.array([255, 0, 255 if transparency == 1 else 128, 255])[RAMP // 64]
    found = saved(image, tmp_path / "image.png", transparency=transparency)
    assert np.abs(found - on_white(colour, opacity)).max() <= 1


def test_one_transparent_colour_lies_on_white(tmp_path: Path) -> None:
    found = saved(Image.fromarray(colours()), tmp_path / "image.png", transparency=tuple(colours()[3, 4].tolist()))
    expected = colours()
    expected[(expected == expected[3, 4]).all(axis=2)] = 255
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("suffix", ["jpg", "tiff"])
def test_cmyk(tmp_path: Path, suffix: str) -> None:
    inks = [Image.fromarray(np.full_like(RAMP, value)) for value in (0, 128, 255, 51)]
    found = saved(Image.merge("CMYK", inks), tmp_path / f"image.{suffix}")
    expected = np.array([255, 127, 0]) * (255 - 51) / 255  # inverted ink, times 1 − black
    assert np.abs(found - expected).max() <= 4


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
@pytest.mark.parametrize("deep", [False, True])
def test_exif_orientation(tmp_path: Path, orientation: int, deep: bool) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    image, pixels = (Image.fromarray(DEEP), grey(RAMP)) if deep else (Image.fromarray(colours()), colours())
    found = saved(image, tmp_path / "image.png", exif=exif)
    assert np.array_equal(found, UPRIGHT[orientation](pixels))


@pytest.mark.parametrize("values", [RAMP, DEEP])
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_rotated_tiff(tmp_path: Path, values: np.ndarray, compression: str | None) -> None:
    found = saved(Image.fromarray(values), tmp_path / "image.tiff", tiffinfo={274: 6}, compression=compression)
    assert np.array_equal(found, np.rot90(grey(RAMP), -1))


@pytest.mark.parametrize("mode", ["F", "I"])
def test_grey_without_a_known_white_is_refused(tmp_path: Path, mode: str) -> None:
    values = np.full((4, 4), 100000, dtype=np.float32 if mode == "F" else np.int32)
    Image.fromarray(values).save(tmp_path / "image.tiff")
    with pytest.raises(ValueError, match="grey"):
        read_image(tmp_path / "image.tiff")


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_damaged_files_raise(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "image.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:2000] if content is None else content)
    with pytest.raises((OSError, ValueError)):
        read_image(path)


@pytest.mark.skipif("HOLDOUT_TEST_IMAGES" not in os.environ, reason="HOLDOUT_TEST_IMAGES is not set")
@pytest.mark.parametrize("folder", ["omniglot", "grocery"])
def test_real_images_are_what_pillow_reads(folder: str) -> None:
    paths = sorted(Path(os.environ["HOLDOUT_TEST_IMAGES"], folder, "images").glob("*/*"))[::200]
    assert paths
    for path in paths:
        with Image.open(path) as image:
            assert np.array_equal(read_image(path), np.asarray(image.convert("RGB")))
