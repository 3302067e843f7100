"""Scores of many items: in memory that grows as they do, and with a forecast."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support.without_faiss import without_faiss
from torch.utils._python_dispatch import TorchDispatchMode

from search.records import scoring
from trainables.common import forecast
from trainables.common.forecast import Forecast
from trainables.metrics import evaluation, gallery
from trainables.metrics.evaluation import evaluate


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that an operation returned."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        tensors = [entry for entry in torch.utils._pytree.tree_leaves(found) if isinstance(entry, torch.Tensor)]
        self.bytes = max([self.bytes, *(entry.numel() * entry.element_size() for entry in tensors)])
        return found


def drawn(items: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(items) % classes
    return torch.randn(classes, 8, generator=generator)[labels_N] + torch.randn(items, 8, generator=generator), labels_N


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (gallery, evaluation, scoring):
        for name in {"_BLOCK_BYTES", "_BLOCK_RANKS", "_BLOCK_NUMBERS", "_ROWS", "_BLOCK_PAIRS"} & vars(module).keys():
            monkeypatch.setattr(module, name, getattr(module, name) >> 7)
    with without_faiss():  # tensors of torch are seen
        yield


@pytest.mark.usefixtures("small_blocks")
def test_no_table_of_all_pairs_is_made() -> None:
    """Neither of items nor of items and classes: twice as many need twice the memory, not four times."""
    peaks = []
    for items in (800, 1600):
        embeddings_ND, labels_N = drawn(items, items // 4)
        with Largest() as largest:
            evaluate(embeddings_ND, labels_N, ["map", "map_at_r", "recall_at_8", "nmi", "dists_ratio"])
            keys = list(map(str, range(items)))
            scoring.retrieval_of(embeddings_ND, labels_N, keys, keys)
        peaks.append(largest.bytes)
    assert peaks[1] <= 2.2 * peaks[0]
    assert peaks[1] < 1600 * 1600


# Forecasts.


def test_a_forecast_comes_late_and_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    clock = iter([0.0, *range(1, 1001)]).__next__
    progress = Forecast("Counting", 1000, clock)
    for _ in range(1000):
        progress.add(1)
    assert [record.getMessage() for record in caplog.records] == [
        "Counting: 0.5 % after 5 s, about 17 min left.",
        "Counting: 1.0 % after 10 s, about 16 min left.",
        "Counting: 2.0 % after 20 s, about 16 min left.",
        "Counting: 4.0 % after 40 s, about 16 min left.",
        "Counting: 8.0 % after 80 s, about 15 min left.",
        "Counting: 16.0 % after 3 min, about 14 min left.",
        "Counting: 32.0 % after 5 min, about 11 min left.",
        "Counting: 64.0 % after 11 min, about 6 min left.",
    ]


def test_metrics_forecast_their_end(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(forecast, "FIRST_S", 0.0)
    monkeypatch.setattr(gallery, "_BLOCK_QUERIES", 20)
    monkeypatch.setattr(gallery, "_BLOCK_BYTES", 20 * 64 * 100)
    evaluate(*drawn(100, 10), ["map", "recall_at_1", "nmi"])
    told = {record.getMessage().split(":")[0] for record in caplog.records}
    assert told == {
        "Whole rankings of 100 queries", "Neighbours of 100 queries",
        "k-means of 100 items in 10 clusters, at most",
    }  # fmt: skip
