"""Whatever ``numpy.asarray`` takes gives the values of the plain array, or one sentence."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st

import holdout
from trainables.common.errors import InvalidInput
from trainables.common.vectors import classes, mask, numbers

NUMBERS: dict[str, Callable[[np.ndarray], Any]] = {
    "lists": lambda x: x.tolist(),
    "list of tensors": lambda x: list(torch.tensor(x)),
    "other strides": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "read only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "other bytes": lambda x: x.astype(">f8"),
    "objects": lambda x: x.astype(object),
    "table": lambda x: pd.DataFrame(x, index=np.arange(len(x))[::-1] + 5),
    "filtered column of rows": lambda x: pd.DataFrame({"x": [x[0], *x]})[1:].x,
    "nullable": lambda x: pd.DataFrame(x).astype("Float64"),
    "tensor with gradients": lambda x: torch.tensor(x, requires_grad=True),
    "sparse": lambda x: torch.tensor(x).to_sparse(),
}
LABELS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda y: y.tolist(),
    "text array": lambda y: y.astype(str),
    "bytes": lambda y: y.astype(bytes),
    "objects": lambda y: y.astype(object),
    "floats": lambda y: y / 7,
    "float tensor": lambda y: torch.tensor(y).bfloat16(),
    "large": lambda y: y.astype(np.uint64) + 2**63,
    "pairs of types": lambda y: [label if label % 2 else str(label) for label in y.tolist()],
    "filtered": lambda y: pd.Series([99, *y])[1:],
    "category": lambda y: pd.Series(y).astype("category"),
    "nullable": lambda y: pd.Series(y).astype("Int64"),
    "text column": lambda y: pd.Series(y).astype(str).astype("string"),
    "dates": lambda y: [datetime(2026, 1, 1) + timedelta(days=int(label)) for label in y],
    "times": lambda y: y.astype("datetime64[D]"),
    "sparse": lambda y: torch.tensor(y).to_sparse(),
}


@pytest.mark.parametrize("form", NUMBERS.values(), ids=NUMBERS)
def test_numbers_in_any_form(form: Callable[[np.ndarray], Any]) -> None:
    x = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(numbers(form(x), "x").double().numpy(), x)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_numbers_of_a_quantized_tensor() -> None:
    quantized = torch.quantize_per_tensor(torch.tensor([[0.5, -1.25]]), 0.25, 0, torch.qint8)
    assert numbers(quantized, "x").tolist() == [[0.5, -1.25]]


@pytest.mark.parametrize("form", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("labels", [[20], [3, 0, 3, 20, 1, 1, 12, 0]], ids=len)
def test_classes_in_any_form(form: Callable[[np.ndarray], Any], labels: list[int]) -> None:
    y = np.array(labels)
    found = classes(form(y), "labels").numpy()
    assert found.shape == y.shape
    np.testing.assert_array_equal(found[:, None] == found, y[:, None] == y)


ENTRIES = st.sampled_from(["a", "1", "1.5", "nan", "True", b"a", "a\0", 1, 2**53, 2**53 + 1, 1.5, 0.5])


@settings(max_examples=60, deadline=None)
@given(labels=st.lists(ENTRIES, min_size=1, max_size=9))
def test_entries_of_several_types_stay_what_they_are(labels: list[Any]) -> None:
    found = classes(labels, "labels").tolist()
    assert [[one == other for other in found] for one in found] == [[a == b for b in labels] for a in labels]


ROWS = np.ones((3, 2))


@pytest.mark.parametrize(
    ("read", "wrong", "words"),
    [
        (numbers, [["a", "b"]], "x must be real numbers"),
        (numbers, [[1, 2], [3]], "x cannot be read as an array"),
        (numbers, torch.ones(2) * 1j, "x must be real numbers"),
        (numbers, pd.DataFrame({"a": [1], "b": ["x"]}), "x must be real numbers"),
        (numbers, (row for row in ROWS), "x must be real numbers"),
        (numbers, np.ma.masked_equal([1.0, 2.0], 2), "x has masked entries"),
        (classes, [1.0, np.nan], "x: 1 entry missing"),
        (classes, ["a", None], "x: 1 entry missing"),
        (classes, ["a", float("nan")], "x: 1 entry missing"),
        (classes, pd.Series([1, None, 2, None], dtype="Int64"), "x: 2 entries missing .*, the first in row 1;"),
        (classes, np.ma.masked_equal([1, 2], 2), "x has masked entries"),
        (mask, [0, 1, 2], "x must be true or false for each item"),
        (mask, ["True"], "x must be real numbers"),
    ],
)
def test_anything_else_is_a_sentence(read: Callable[[Any, str], Any], wrong: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{words}"):
        read(wrong, "x")


def test_evaluate_takes_tables() -> None:
    x = np.random.default_rng(0).normal(size=(12, 4))
    table = pd.DataFrame(x).assign(label=[f"c{row % 3}" for row in range(12)], query=[True] * 6 + [False] * 6)
    table = table.sample(frac=1, random_state=0)
    metrics = ["recall_at_1", "map_at_r"]
    codes = table.label.str[1:].astype(int).to_numpy()
    expected = holdout.evaluate(table[[0, 1, 2, 3]].to_numpy(), codes, metrics, queries=table["query"].to_numpy())
    assert holdout.evaluate(table[[0, 1, 2, 3]], table.label, metrics, queries=table["query"]) == expected
