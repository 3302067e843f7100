"""Values that Python code gives in place of YAML's: they mean the same, or are refused by name."""

import array
import datetime
import decimal
import enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings, strategies as st

import holdout
from search.config.search_config import parse_config
from search.config.validation import plain
from trainables.errors import InvalidInput
from trainables.losses import LossRow


class Colour(enum.Enum):
    RED = "red"


NUMBERS = (np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64)


@given(st.integers(0, 100), st.sampled_from(NUMBERS), st.sampled_from((1, 4, 10)))
def test_numbers_of_libraries_keep_their_value(number: int, kind: Any, parts: int) -> None:
    value = number / parts if issubclass(kind, np.floating) else number
    array = np.asarray([value], dtype=kind)
    for given_, expected in ((array[0], value), (array, [value]), (torch.tensor(array)[0], value)):
        found = plain(given_)
        assert found == expected
        assert type(found) in (int, float, list)
    assert holdout.Choice([array[0]], default=torch.tensor(array)[0]) == holdout.Choice([value], default=value)
    low, high = kind(number), kind(number) + kind(10)
    ranged = holdout.Float(low, high, default=torch.tensor(high))
    assert ranged == holdout.Float(plain(low), plain(high), default=plain(high))
    assert {type(entry) for entry in (ranged.default, *ranged.ends)} <= {int, float}


SAME = [
    (np.bool_(True), True), (np.str_("a"), "a"), (Path("a/b"), "a/b"), (Colour.RED, "red"), (range(3), [0, 1, 2]),
    ((1, 2), [1, 2]), ({np.int64(1): np.float32(0.3)}, {"1": 0.3}), (np.array([["a"], ["b"]]), [["a"], ["b"]]),
    (torch.tensor([0.1, 0.2]), [0.1, 0.2]), (None, None), (torch.tensor(3), 3),
    (torch.tensor(0.1, requires_grad=True), 0.1), (torch.tensor(0.5).bfloat16(), 0.5), (np.longdouble(0.5), 0.5),
    (np.array(7), 7), (array.array("d", [0.5]), [0.5]), (LossRow, "trainables.losses:LossRow"),
    (plain, "search.config.validation:plain"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), SAME, ids=lambda value: type(value).__name__)
def test_a_value_keeps_its_meaning(value: Any, expected: Any) -> None:
    found = plain({"a": {"b": [value]}})["a"]["b"][0]
    assert found == expected
    assert type(found) is type(expected)


REFUSED = [
    datetime.datetime(2026, 1, 1), np.datetime64("2026-01-01"), np.datetime64(1, "ns"), np.timedelta64(1, "ns"),
    np.array(None), np.void(b"a"), np.bytes_(b"a"), decimal.Decimal(1), {1, 2}, 1j, object(), print, np.complex64(1),
    holdout.Float(0, 1), np.ma.masked, pandas.NA, torch.tensor(1.0, device="meta"), torch.int8,
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_what_has_no_such_meaning_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^split\.seed: must be text, a number, true, false, .*; convert it\.$"):
        parse_config({"name": "x", "dataset": {"name": "glyphs"}, "losses": ["pnp"], "split": {"seed": value}})


@settings(max_examples=20)
@given(
    st.recursive(
        st.just("a\udcff"),
        lambda inner: (
            st.lists(inner, min_size=1) | st.dictionaries(st.sampled_from(["a", "b\ud800"]), inner, min_size=1)
        ),
    )
)
def test_text_that_is_no_utf8_is_refused_anywhere(value: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r"^losses\S*: '\S*\\ud\S+' is no text in UTF-8; rename what has this name\.$"
    ):
        plain({"losses": value})


def test_a_value_that_contains_itself_is_refused() -> None:
    content: dict[str, Any] = {"losses": []}
    content["losses"].append(content)
    with pytest.raises(InvalidInput, match=r"^losses: nested more than 100 levels deep, or contains itself"):
        plain(content)


def test_a_part_of_a_notebook_cannot_be_imported_elsewhere() -> None:
    cell = type("Cell", (), {"__module__": "__main__"})
    for named in (cell, "__main__:Cell"):
        with pytest.raises(InvalidInput, match=r"^losses: '__main__:Cell' is in the script or notebook.* %%writefile"):
            plain({"losses": ["pnp", named]})
