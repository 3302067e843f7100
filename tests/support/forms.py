"""Forms of arrays that ``numpy.asarray`` takes, and others."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import torch

NUMBERS: dict[str, Callable[[np.ndarray], Any]] = {
    "lists": lambda x: x.tolist(),
    "list of rows": list,
    "list of tensors": lambda x: list(torch.tensor(x)),
    "other order": np.asfortranarray,
    "other strides": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "read only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "other bytes": lambda x: x.astype(">f8"),
    "long": lambda x: x.astype(np.longdouble),
    "objects": lambda x: x.astype(object),
    "table": lambda x: pd.DataFrame(x, index=np.arange(len(x))[::-1] + 5),
    "filtered column of rows": lambda x: pd.DataFrame({"x": [x[0], *x]})[1:].x,
    "nullable": lambda x: pd.DataFrame(x).astype("Float64"),
    "tensor with gradients": lambda x: torch.tensor(x, requires_grad=True),
    "sparse": lambda x: torch.tensor(x).to_sparse(),
}
LABELS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda y: y.tolist(),
    "reversed": lambda y: y[::-1].copy()[::-1],
    "texts": lambda y: [f"class {label}" for label in y],
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
ODD: dict[str, Callable[[np.ndarray], Any]] = {
    "one masked": lambda x: np.ma.masked_equal(x, x.flat[3]),
    "memory": memoryview,
    "half": lambda x: x.astype(np.float16),
    "complex": lambda x: x + 1j,
    "generator": lambda x: (row for row in x),
    "nothing": lambda x: None,
    "missing": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, None, x),
    "one less": lambda x: x[:-1],
    "structured": lambda x: np.rec.fromarrays(x.T),
    "scalar": lambda x: x.flat[0],
}
"""Forms that may be refused."""
