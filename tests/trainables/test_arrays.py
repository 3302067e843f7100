"""Hostile npz files: each is refused as damaged, without running code or taking memory out of proportion."""

import io
import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_LZMA, ZIP_STORED, ZipFile

import numpy as np
import pytest

from trainables.arrays import array_names, read_arrays
from trainables.errors import InvalidInput
from trainables.files import DAMAGED, reading

MB = 2**20


def npy(header: str | None = None, body: bytes = b"\0" * 80, version: bytes = b"\1\0") -> bytes:
    """Return an npy file of ten numbers, whatever its ``header`` says."""
    text = (header or "{'descr': '<f8', 'fortran_order': False, 'shape': (10,), }").encode() + b"\n"
    length = struct.pack("<H" if version == b"\1\0" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + body


def zipped(content: bytes, compression: int = ZIP_STORED, name: str = "a.npy") -> bytes:
    file = io.BytesIO()
    with ZipFile(file, "w", compression) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def shaped(shape: str, descr: str = "'<f8'") -> bytes:
    return zipped(npy(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"))


def cut_stream() -> bytes:
    """A deflated entry whose bytes are no stream any more."""
    content = bytearray(zipped(npy(body=bytes(range(80))), ZIP_DEFLATED))
    content[40:60] = b"\xff" * 20
    return bytes(content)


def flagged(bit: int) -> bytes:
    """An entry with a flag that asks for a password, or another bit."""
    content = bytearray(zipped(npy()))
    for at, offset in ((content.find(b"PK\3\4"), 6), (content.find(b"PK\1\2"), 8)):
        content[at + offset] |= bit
    return bytes(content)


def understated() -> bytes:
    """A bomb that claims 80 bytes in the archive's directory."""
    content = bytearray(zipped(npy(body=b"\0" * 100 * MB), ZIP_DEFLATED))
    struct.pack_into("<I", content, content.find(b"PK\1\2") + 24, 80)
    return bytes(content)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "no zip": lambda: b"\x93NUMPY",
    "a pickled entry": lambda: zipped(pickle.dumps(print)),
    "objects": lambda: shaped("(1,)", "'|O'"),
    "structures": lambda: shaped("(1,)", "[('x', '|O'), ('y', '<f8', (9,))]"),
    "a bomb": lambda: zipped(npy(body=b"\0" * 100 * MB), ZIP_DEFLATED),
    "a bomb that understates itself": understated,
    "another compression": lambda: zipped(npy(), ZIP_LZMA),
    "a password": lambda: flagged(1),
    "no stream": cut_stream,
    "a terabyte": lambda: shaped(f"({10**12 // 8},)"),
    "items without bytes": lambda: shaped(f"({10**12},)", "'<U0'"),
    "one item of a gigabyte": lambda: shaped("(1,)", "'|V1000000000'"),
    "negative sides": lambda: shaped("(-2, -5)"),
    "a side that is no number": lambda: shaped("('10',)"),
    "fewer numbers": lambda: shaped("(9,)"),
    "an unfinished header": lambda: zipped(npy("{'descr': (")),
    "a deep header": lambda: zipped(npy("(" * 9_000)),
    "a header that is a program": lambda: zipped(npy("__import__('os').system('true')")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_damaged(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(HOSTILE[name]())
    tracemalloc.start()
    says = r"a\.npz is damaged, or another version wrote it \(.*\); restore it"
    with pytest.raises(InvalidInput, match=says), reading(path):
        read_arrays(path, "a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * MB
    with pytest.raises(DAMAGED):
        read_arrays(path.read_bytes())


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:

    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(OSError, match="not a regular file"):
        read_arrays(tmp_path / "pipe.npz")


def test_numpy_reads_the_same(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    made = {
        "labels": generator.integers(0, 9, 50_000),
        "keys": np.array([f"class/{'é' * (number % 30)}{number:07d}.png" for number in range(50_000)]),
        "scores": generator.normal(size=50_000).astype(np.float32),
        "table": np.asfortranarray(generator.normal(size=(7, 5))),
        "none": np.zeros((0, 8), dtype=np.float16),
        "word": np.array("recall_at_1"),
        "zeros": np.zeros(2_000_000),
    }
    for name, save in (("a.npz", np.savez), ("b.npz", np.savez_compressed)):
        save(tmp_path / name, **made)  # type: ignore[arg-type]
        assert array_names(tmp_path / name) == set(made)
        found = read_arrays(tmp_path / name)
        with np.load(tmp_path / name) as file:
            for key in made:
                np.testing.assert_array_equal(found[key], file[key], strict=True)
        assert [*read_arrays(tmp_path / name, "word", "labels")] == ["word", "labels"]
        with pytest.raises(KeyError):
            read_arrays(tmp_path / name, "other")
