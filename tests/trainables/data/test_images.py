"""Image files: each is decoded as displayed, or reported with a reason, by decoding or by its header alone.

A row gives a writer of the file, the reason reported in a training class (whose images are decoded at the start of a
search), and the reason reported in a test class (whose images are checked without decoding). None means no report.
"""
# ruff: noqa: E501

import io
import itertools
import os
import resource
import struct
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from support.image_stores import build_store
from support.refusals import sentences_of
from torchvision.datasets.folder import IMG_EXTENSIONS

from trainables.data import AUGMENTATIONS, DATASETS, Dataset, Frame
from trainables.data.images import FORMATS, IMAGE_SUFFIXES, as_it_looks, damage_in, identified, inspect, read_image
from trainables.data.loading import load
from trainables.data.store.contents import read_contents
from trainables.data.store.view import Store

# Pillow's warnings about very large images and truncated headers, which the command line suppresses.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore::PIL.Image.DecompressionBombWarning")

NOISE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
COLOUR = Image.fromarray(NOISE)
UNKNOWN = "not an image of a known format"
CUT, LARGE = "the file is cut off", "its header says that it has more than 178,956,970 pixels"
NO_WHITE = "nothing says how much is white"


def encoded(form: str, image: Image.Image = COLOUR, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def holds(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """Return a hand-made PNG with any size in its header."""
    header = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    parts = [(b"IHDR", header), *chunks, (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")
        for kind, content in parts
    )


def with_tag(tag: int, kind: int, count: int, value: bytes) -> bytes:
    """Return a JPEG that lies on its side, with another EXIF tag of this type and value."""
    entries = [(0x0112, 3, 1, b"\6\0\0\0"), (tag, kind, count, value)]
    block = b"".join(struct.pack("<HHI", *entry[:3]) + entry[3] for entry in entries)
    return encoded("JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\2\0" + block + bytes(16))


def linked_outside(path: Path) -> None:
    outside = path.parents[2] / "outside.jpg"
    outside.write_bytes(encoded("JPEG"))
    path.symlink_to(outside)


MORE = [COLOUR.rotate(90, expand=True).resize(COLOUR.size)]
# fmt: off
CASES: dict[str, tuple[Callable[[Path], object], str | None, str | None]] = {
    "0.jpg: JPEG": (holds(encoded("JPEG")), None, None),
    "0.jpg: truncated JPEG": (holds(encoded("JPEG")[:-200]), "image file is truncated", CUT),
    "0.jpg: zeros, as after a power cut": (holds(bytes(5000)), UNKNOWN, UNKNOWN),
    "0.png: no pixel": (holds(png(0, 5, (b"IDAT", b""))), UNKNOWN, UNKNOWN),
    "0.png: a bomb of 60,000 × 60,000": (holds(png(60_000, 60_000, (b"IDAT", b"x"))), LARGE, LARGE),
    "0.png: a bomb of text": (holds(png(5, 5, (b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 25), 9)), (b"IDAT", b"x"))), "too large", "too large"),
    "0.tif: 32-bit float TIFF": (holds(encoded("TIFF", Image.fromarray(NOISE[..., 0].astype(np.float32) * 1000))), NO_WHITE, None),
    "0.jpg: JPEG of two pictures": (holds(encoded("MPO", save_all=True, append_images=MORE)), None, None),
    "0.jpg: EXIF orientation 77": (holds(with_tag(0x0112, 3, 1, b"\x4d\0\0\0")), None, None),
    "0.jpg: text as the resolution": (holds(with_tag(0x011A, 2, 4, b"abc\0")), None, None),
    "0.jpg: link out of the folder": (linked_outside, None, None),
    "0.jpg: pipe": (os.mkfifo, "not a file", "not a file"),
    "a\nb.jpg: name of a line break": (holds(b"x"), "a\\nb.jpg (not", UNKNOWN),
    "\u202egpj.jpg: name that turns writing round": (holds(b"x"), "\\u202egpj.jpg (not", UNKNOWN),
    "[b]'\"\n\x1b[31m;$(x)`.jpg: good image under a hostile name": (holds(encoded("JPEG")), None, None),
}
# fmt: on
"""Name of the file, and what it is -> what writes it, the reason if it is decoded, and if it is only checked."""


def file_of(case: str) -> str:
    return case.partition(": ")[0]


def folder_with(case: str, root: Path) -> Dataset:
    """Return two classes of valid images with the hostile one in the first."""
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for number in range(1, 3):
            (root / name / f"{number}.jpg").write_bytes(encoded("JPEG"))
    CASES[case][0](root / "a" / file_of(case))
    return DATASETS["folder"](root=str(root))


@pytest.mark.parametrize("name", CASES)
def test_an_image_is_read_or_reported(name: str, tmp_path: Path) -> None:
    """In a class that trains it is decoded at the start: one sentence reports it, and no partial store remains.

    In a test class it is checked without decoding; damage is reported and nothing stops.
    """
    _, reason, suspicion = CASES[name]
    dataset, cache = folder_with(name, tmp_path / "images"), tmp_path / "cache"
    said = inspect(dataset.damage, dataset.classes()["a"], seconds=60).sentence("images of test classes")
    assert (said is None) == (suspicion is None)
    if said and suspicion:
        assert said.startswith("1 of 3 images of test classes looks damaged: a/")
        assert suspicion in said
        assert said.isprintable()
    if reason is None:
        contents = read_contents(build_store(dataset, ["a", "b"], short_side=32, cache=cache))
        assert f"a/{file_of(name)}" in contents.image_keys
        assert len(contents.image_keys) == 5
        return
    (sentence,) = sentences_of(build_store, dataset, ["a", "b"], short_side=32, cache=cache)
    assert sentence.startswith("1 of 5 images cannot be read: a/")
    assert sentence.endswith("). Replace or remove them.")
    assert reason in sentence
    assert sentence.isprintable()
    assert {path.suffix for path in cache.iterdir()} <= {".lock", ".used"}


@settings(max_examples=30, deadline=None)
@given(st.integers(0x0113, 0xFFFF), st.integers(1, 13), st.integers(0, 5), st.binary(min_size=4, max_size=4))
def test_an_image_is_upright_whatever_else_its_metadata_hold(tag: int, kind: int, count: int, value: bytes) -> None:
    assert as_it_looks(identified(io.BytesIO(with_tag(tag, kind, count, value)))).size == COLOUR.size[::-1]


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_thin_and_flat_images_in_a_batch_need_little_memory(augmentation: str, square: bool, tmp_path: Path) -> None:
    """Each colour is preserved, and no array of 20,000 × 20,000 pixels is allocated."""
    (tmp_path / "images" / "a").mkdir(parents=True)
    sizes = [(1, 20_000), (20_000, 1), (1, 1), (30, 40)]
    for number, size in enumerate(sizes):
        Image.new("RGB", size, (50 * number, 0, 255)).save(tmp_path / "images" / "a" / f"{number}.png")
    dataset = DATASETS["folder"](root=str(tmp_path / "images"))
    store = Store(build_store(dataset, ["a"], short_side=32, cache=tmp_path / "cache"))
    assert store.sizes_N2.tolist() == [[height, width] for width, height in sizes]
    view, frame = store.subset(["a"]), Frame(side=16, short_side=20, square=square)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batch = load(view, torch.arange(4), augmentation, frame, device=torch.device("cpu"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 500_000, "kilobytes"
    expected_B3 = torch.tensor([[50 * number / 255, 0, 1] for number in range(4)])
    assert torch.allclose(batch, expected_B3[:, :, None, None].expand_as(batch), atol=1e-3)


SMALL = Image.fromarray(NOISE[:12, :15])


def with_preview(jpeg: bytes) -> bytes:
    """Return a JPEG with a preview in its header, as written by cameras."""
    segment = b"Preview" + jpeg
    return jpeg[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[2:]


JPEG, PNG = encoded("JPEG", SMALL), encoded("PNG", SMALL)
# Each with the number of last bytes that hold no pixel, without which it can be decoded.
FILES: dict[str, tuple[bytes, int]] = {
    "JPEG": (JPEG, 0),
    "progressive JPEG": (encoded("JPEG", SMALL, progressive=True), 0),
    "CMYK JPEG": (encoded("JPEG", SMALL.convert("CMYK")), 0),
    "JPEG with a preview": (with_preview(JPEG), 0),
    "JPEG padded with zeros": (JPEG + bytes(100), 0),
    "JPEG with a camera's trailer": (JPEG + b"trailer" * 30, 0),
    "JPEG of two pictures": (encoded("MPO", SMALL, save_all=True, append_images=[SMALL]), 0),
    "PNG": (PNG, 20),
    "PNG padded with zeros": (PNG + bytes(100), 120),
    "WebP": (encoded("WEBP", SMALL), 0),
}


def holds_for(path: Path, check: Callable[[Path], bool]) -> bool:
    """Return what ``check`` returns; False if it raises, as image decoders do."""
    try:
        return check(path)
    except Exception:
        return False


@pytest.mark.parametrize("name", FILES)
def test_a_file_truncated_anywhere_is_detected(name: str, tmp_path: Path) -> None:
    """Compare with the decoder on files truncated to many lengths."""
    content, without_pixels = FILES[name]
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    assert damage_in(path) is None
    for length in [*range(0, len(content), 29), *range(len(content) - 30, len(content))]:
        path.write_bytes(content[:length])
        decoded = holds_for(path, lambda path: bool(read_image(path).size))
        damaged = not holds_for(path, lambda path: damage_in(path) is None)
        assert damaged or decoded, f"not detected: a file truncated to {length} of {len(content)} bytes"
        if damaged and decoded:
            assert len(content) - length <= without_pixels, f"{length} of {len(content)} bytes are an image"


def test_what_is_damaged_is_counted_and_a_slow_file_system_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [str(number) for number in range(40)]
    look = inspect(lambda key: CUT if int(key) % 4 == 3 else None, keys, seconds=60)
    assert [image.key for image in look.damaged] == keys[3::4]
    named = "; ".join(f"{number} ({CUT})" for number in (3, 7, 11, 15, 19))
    assert look.sentence("images") == f"10 of 40 images look damaged: {named}; and 5 more."
    seconds = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))
    look = inspect(lambda key: None, [str(number) for number in range(300)], seconds=20)
    assert 10 <= look.looked <= 20
    said = f"None of the {look.looked} of 300 images that could be checked in 20 s looks damaged."
    assert look.sentence("images") == said


# Every kind of image file is read as displayed.


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
