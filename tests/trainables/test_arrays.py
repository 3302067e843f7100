"""npz files: what NumPy wrote is read the same, and what was cut is damaged."""

from pathlib import Path

import numpy as np
import pytest

from trainables.arrays import array_names, read_arrays
from trainables.errors import InvalidInput
from trainables.files import reading


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.arange(1_000), b=np.arange(9))
    content = (tmp_path / "a.npz").read_bytes()
    for length in range(0, len(content), 37):
        with pytest.raises(InvalidInput, match="is damaged"), reading("it"):
            read_arrays(content[:length], "a", "b")


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
