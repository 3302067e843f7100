"""Checking images without decoding: a file truncated anywhere is detected, and no pixel is decoded."""

import io
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile
from support.small_search import draw_folder

from trainables.data.header import HeaderCheck, damage_in, inspect
from trainables.data.images import read_image
from trainables.data.sets.folders import Folder

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # about truncated headers

NOISE = np.random.default_rng(0).integers(0, 256, (12, 15, 3), dtype=np.uint8)
COLOUR = Image.fromarray(NOISE)


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def with_preview(jpeg: bytes) -> bytes:
    """Return a JPEG with a preview in its header, as written by cameras."""
    segment = b"Preview" + jpeg
    return jpeg[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[2:]


JPEG = encoded(COLOUR, "JPEG")
PNG = encoded(COLOUR, "PNG")
# Each with the number of last bytes that hold no pixel, without which it can be decoded.
FILES: dict[str, tuple[bytes, int]] = {
    "JPEG": (JPEG, 0),
    "progressive JPEG": (encoded(COLOUR, "JPEG", progressive=True), 0),
    "CMYK JPEG": (encoded(COLOUR.convert("CMYK"), "JPEG"), 0),
    "JPEG with a preview": (with_preview(JPEG), 0),
    "JPEG padded with zeros": (JPEG + bytes(100), 0),
    "JPEG with a camera's trailer": (JPEG + b"trailer" * 30, 0),
    "JPEG of two pictures": (encoded(COLOUR, "MPO", save_all=True, append_images=[COLOUR]), 0),
    "PNG": (PNG, 20),
    "PNG padded with zeros": (PNG + bytes(100), 120),
    "WebP": (encoded(COLOUR, "WEBP"), 0),
}


def is_damaged(path: Path) -> bool:
    try:
        return damage_in(path) is not None
    except Exception:  # image decoders raise anything
        return True


def is_decoded(path: Path) -> bool:
    try:
        return bool(read_image(path).size)
    except Exception:  # image decoders raise anything
        return False


@pytest.mark.parametrize("name", FILES)
def test_a_file_truncated_anywhere_is_detected(name: str, tmp_path: Path) -> None:
    """Compare with the decoder on files truncated to many lengths."""
    content, without_pixels = FILES[name]
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    assert damage_in(path) is None
    for length in [*range(0, len(content), 17), *range(len(content) - 30, len(content))]:
        path.write_bytes(content[:length])
        damaged, decoded = is_damaged(path), is_decoded(path)
        assert damaged or decoded, f"not detected: a file truncated to {length} of {len(content)} bytes"
        if damaged and decoded:
            assert len(content) - length <= without_pixels, f"{length} of {len(content)} bytes are an image"


def test_no_pixel_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoding(*_: object) -> None:
        pytest.fail("pixels were decoded")

    paths = []
    for name, (content, _) in FILES.items():
        paths.append(tmp_path / f"{name}.jpg")
        paths[-1].write_bytes(content)
    kinds = {Image.Image, ImageFile.ImageFile}
    for content, _ in FILES.values():
        with Image.open(io.BytesIO(content)) as image:
            kinds.add(type(image))
    for kind in kinds:
        monkeypatch.setattr(kind, "load", decoding)
    assert [damage_in(path) for path in paths] == [None] * len(FILES)


def test_all_that_are_damaged_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", classes=4)
    dataset = Folder(root=str(root))
    keys = [key for keys in dataset.classes().values() for key in keys]
    assert inspect(dataset.damage, keys, seconds=60) == HeaderCheck(looked=40, total=40, seconds=60, damaged=())
    assert inspect(dataset.damage, keys, seconds=60).sentence("test classes") is None
    for key in keys[3::4]:
        (root / key).write_bytes((root / key).read_bytes()[:300])
    look = inspect(dataset.damage, keys, seconds=60)
    assert [image.key for image in look.damaged] == keys[3::4]
    said = look.sentence("test classes")
    assert said is not None
    assert said.startswith(f"10 of 40 images of test classes look damaged: {keys[3]} (the file is cut off); ")
    assert said.endswith("; and 5 more.")


def test_a_slow_file_system_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))
    look = inspect(lambda key: None, [str(number) for number in range(300)], seconds=20)
    assert 10 <= look.looked <= 20
    assert look.sentence("test classes") == (
        f"None of the {look.looked} of 300 images of test classes that could be checked in 20 s looks damaged."
    )


@dataclass(frozen=True, kw_only=True)
class Arrays(Folder):
    """Files of a format unknown to Pillow."""

    def read(self, key: str) -> np.ndarray:
        return NOISE


def test_files_with_a_user_defined_reader_are_not_checked(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.png").write_bytes(b"rows of numbers")
    assert Arrays(root=str(tmp_path)).damage("a/0.png") is None
    with pytest.raises(ValueError, match="not an image of a known format"):
        Folder(root=str(tmp_path)).damage("a/0.png")
