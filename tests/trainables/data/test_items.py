"""Items of any kind as bytes, and back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trainables.data.store.contents import item_bytes, item_digest, item_of

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
ITEMS = st.recursive(
    PLAIN | st.text(alphabet="ab/").map(Path),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=20)
@given(ITEMS)
def test_an_item_comes_back_as_it_was(item: Any) -> None:
    found = item_of(item_bytes(item))
    assert found == item
    assert type(found) is type(item)


@pytest.mark.parametrize("kind", ["bool", "uint8", "int64", "float32", "complex64", ">i2"])
def test_arrays_come_back_and_can_be_written(kind: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    found = item_of(item_bytes({"a": array[:, ::-1], "b": [array.T, np.float32(2)]}))
    np.testing.assert_array_equal(found["a"], array[:, ::-1])
    np.testing.assert_array_equal(found["b"][0], array.T)
    assert found["a"].dtype == array.dtype
    assert found["b"][1] == 2.0
    found["a"][:] = 0


@pytest.mark.parametrize("item", [{1, 2}, object(), {1: "a"}, np.array(["a"]), [lambda: 0]])
def test_another_kind_is_refused(item: Any) -> None:
    with pytest.raises(ValueError, match="an item is a text, bytes, a number"):
        item_bytes(item)


def test_digests_are_those_of_the_content(tmp_path: Path) -> None:
    for name, text in {"a": "the same", "b": "the same", "c": "another"}.items():
        (tmp_path / name).write_text(text)
    a, b, c = ({"audio": tmp_path / name} for name in "abc")
    assert item_digest(a) == item_digest(b)
    arrays = (np.array([1]), np.array([[1]]), np.array([2]))
    items: list[Any] = ["1", 1, 1.5, True, None, b"1", [1], (1,), {"a": 1}, *arrays, b, c]
    assert len({item_digest(item) for item in items}) == len(items)
