"""Vectors in any form that ``numpy.asarray`` takes, as tensors, and unit vectors at every scale.

Shapes: N vectors, D dimensions.
"""

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
from trainables.common.vectors import classes, mask, numbers, unit, without_order
from trainables.metrics.evaluation import evaluate

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


@pytest.mark.parametrize(
    ("read", "wrong", "words"),
    [
        (numbers, [["a", "b"]], "x must be real numbers"),
        (numbers, [[1, 2], [3]], "x cannot be read as an array"),
        (numbers, torch.ones(2) * 1j, "x must be real numbers"),
        (numbers, np.ma.masked_equal([1.0, 2.0], 2), "x has masked entries"),
        (classes, [1.0, np.nan], "x: 1 entry missing"),
        (classes, ["a", float("nan")], "x: 1 entry missing"),
        (classes, pd.Series([1, None, 2, None], dtype="Int64"), "x: 2 entries missing .*, the first in row 1;"),
        (classes, np.ma.masked_equal([1, 2], 2), "x has masked entries"),
        (mask, [0, 1, 2], "x must be true or false for each item"),
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


# Unit vectors at every scale, in training and evaluation.

TYPES = st.sampled_from([(torch.float32, 36), (torch.float64, 306)])


@settings(max_examples=60, deadline=None)
@given(of=TYPES, share=st.floats(-1, 1), dimensions=st.integers(1, 600), seed=st.integers(0, 10**6))
def test_directions_are_exact_at_every_scale(
    of: tuple[torch.dtype, int], share: float, dimensions: int, seed: int
) -> None:
    dtype, most = of
    direction_D = np.random.default_rng(seed).uniform(-1, 1, dimensions).clip(1e-2 - 1)
    vectors_ND = (torch.from_numpy(direction_D) * 10.0 ** (share * most)).to(dtype)[None].requires_grad_()
    found_ND = unit(vectors_ND)
    exact_D = vectors_ND[0].detach().double() / vectors_ND[0].detach().double().abs().max()
    torch.testing.assert_close(found_ND[0].double(), exact_D / exact_D.norm(), atol=1e-6, rtol=1e-6)
    (gradient_ND,) = torch.autograd.grad(found_ND.sum(), vectors_ND)
    assert gradient_ND.isfinite().all()
    if abs(share * most) < 5:
        assert torch.equal(found_ND, torch.nn.functional.normalize(vectors_ND))


@settings(max_examples=12, deadline=None)
@given(
    of=TYPES, scale=st.floats(-1, 1), spread=st.booleans(),
    images=st.integers(2, 60), seed=st.integers(0, 10**6),
)  # fmt: skip
def test_no_scale_changes_a_metric(
    of: tuple[torch.dtype, int], scale: float, spread: bool, images: int, seed: int
) -> None:
    """Scale by powers of two, which are exact, all vectors alike or each by its own."""
    generator = np.random.default_rng(seed)
    dtype, most = of
    embeddings_ND = torch.from_numpy(generator.integers(-9, 10, size=(images, 5)) + 0.5).to(dtype)
    labels_N = torch.from_numpy(generator.integers(4, size=images))
    powers_N = generator.uniform(-1, 1, size=images) if spread else np.full(images, scale)
    factors_N = torch.from_numpy(2.0 ** (powers_N * most * 3).round()).to(dtype)
    expected = evaluate(embeddings_ND, labels_N, "all")
    found = evaluate(embeddings_ND * factors_N[:, None], labels_N, "all")
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_a_zero_vector_stays_zero_and_gets_no_gradient() -> None:
    vectors_ND = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    unit_ND = unit(vectors_ND)
    torch.testing.assert_close(unit_ND.detach(), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))
    (unit_ND @ unit_ND.T).sum().backward()
    assert vectors_ND.grad is not None
    assert vectors_ND.grad.isfinite().all()
    assert not vectors_ND.grad[0].any()


@pytest.mark.parametrize(
    ("apart", "is_found"), [(0.0, True), (3e-7, True), (1e-5, False), (8e-3, False)]
)  # rounding of a deep network, and near collapse
@pytest.mark.parametrize("count", [2, 3000])
def test_vectors_of_one_direction_have_no_order(count: int, apart: float, is_found: bool) -> None:
    lengths_N = torch.linspace(1e-3, 1e3, count)
    vectors_ND = torch.tensor([[3.0, 4.0, 0.0]]).repeat(count, 1)
    vectors_ND[-1, 2] = 5 * apart
    found = without_order(vectors_ND * lengths_N[:, None])
    assert found == (f"all {count:,} embeddings have the same direction" if is_found else "")
    assert without_order(vectors_ND[:1]) == "", "one item is not a collapse"
