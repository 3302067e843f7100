"""Searches side by side on a cluster: what each may use."""

import logging

import pytest

from search.engines.waiting import Share


@pytest.mark.parametrize(
    ("workers", "drivers", "expected"), [(16, 1, 16), (16, 2, 8), (16, 3, 5), (2, 5, 1), (4, 0, 4)]
)
def test_every_search_has_the_same_share_and_at_least_one_worker(workers: int, drivers: int, expected: int) -> None:
    share = Share(workers, lambda: drivers)
    assert share.workers == expected
    assert share.is_shared == (drivers > 1)


def test_a_share_follows_the_number_of_drivers(caplog: pytest.LogCaptureFixture) -> None:
    on_cluster = iter([1, 2, 2, 3, 1])
    share = Share(12, lambda: next(on_cluster), poll_s=0.0)
    with caplog.at_level(logging.WARNING):
        assert [share.workers for _ in range(5)] == [12, 6, 6, 4, 12]
    assert caplog.messages == [
        "2 searches share this cluster: 6 of 12 workers each.",
        "3 searches share this cluster: 4 of 12 workers each.",
        "No other search uses this cluster any more: all 12 workers are free.",
    ]
