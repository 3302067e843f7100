"""Invariants of the batch samplers."""

from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from support.refusals import sentences_of

from trainables.data.batch_samplers import BATCH_SAMPLERS, lacks

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def labels_of(sizes: list[int], seed: int) -> torch.Tensor:
    """Return shuffled labels with gaps between their numbers."""
    labels_N = torch.tensor([3 * label + 5 for label, size in enumerate(sizes) for _ in range(size)])
    return labels_N[torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(seed))]


@pytest.mark.parametrize("name", BATCH_SAMPLERS)
@settings(max_examples=25, deadline=None)
@given(sizes=SIZES, batch_size=st.integers(1, 24), m=st.integers(0, 6), seed=st.integers(0, 99))
def test_every_sampler(name: str, sizes: list[int], batch_size: int, m: int, seed: int) -> None:
    labels_N = labels_of(sizes, seed)
    make = partial(BATCH_SAMPLERS[name], labels_N, batch_size=batch_size, images_per_class=m, seed=seed)
    if problems := BATCH_SAMPLERS[name].problems(sizes, batch_size, m):
        assert sentences_of(make) == tuple(problems)
        return
    batches = list(make().batches(3))
    assert len(batches) == len(make()) == max(len(labels_N) // batch_size, 1)
    assert all(torch.equal(batch, other) for batch, other in zip(batches, make().batches(3), strict=True))
    for batch_B in batches:
        assert batch_B.dtype == torch.int64
        assert len(batch_B) == batch_size
        assert batch_B.min() >= 0
        assert batch_B.max() < len(labels_N)
        counts = Counter(labels_N[batch_B].tolist())
        if name == "balanced":
            assert set(counts.values()) == {m}
            for label in counts:  # images of a small class are repeated evenly
                times = [batch_B.tolist().count(image) for image in (labels_N == label).nonzero().flatten().tolist()]
                assert max(times) - min(times) <= 1
        if name == "up_to":
            shares = {label: min(m, sizes[(label - 5) // 3]) for label in counts}
            assert all(counts[label] <= shares[label] for label in counts)
            assert sum(counts[label] < shares[label] for label in counts) <= 1
            assert len(batch_B.unique()) == batch_size
    if name == "random":
        assert len(torch.cat(batches).unique()) == len(batches) * batch_size


@pytest.mark.parametrize("name", BATCH_SAMPLERS)
@settings(max_examples=20, deadline=None)
@given(sizes=SIZES, classes=st.integers(1, 3), m=st.integers(1, 6))
def test_what_is_lacking_is_in_no_batch_and_else_in_some(name: str, sizes: list[int], classes: int, m: int) -> None:
    batch_size = classes * m
    assume(not BATCH_SAMPLERS[name].problems(sizes, batch_size, m))
    missing, labels_N = lacks(name, sizes, batch_size, m), labels_of(sizes, 0)
    sampler = BATCH_SAMPLERS[name](labels_N, batch_size=batch_size, images_per_class=m, seed=0)
    counts = [Counter(labels_N[batch_B].tolist()) for epoch in range(4) for batch_B in sampler.batches(epoch)]
    alike, apart = any(max(of.values()) > 1 for of in counts), any(len(of) > 1 for of in counts)
    if missing:
        assert not (alike if missing == "two images of a class" else apart)
    elif name == "balanced":
        assert alike
        assert apart


@settings(max_examples=25, deadline=None)
@given(sizes=SIZES, classes=st.integers(1, 6), m=st.integers(1, 4))
def test_classes_come_in_rounds(sizes: list[int], classes: int, m: int) -> None:
    assume(classes <= len(sizes) and classes * m >= 2)
    labels_N = labels_of(sizes, 1)
    sampler = BATCH_SAMPLERS["balanced"](labels_N, batch_size=classes * m, images_per_class=m, seed=0)
    seen: Counter[int] = Counter()
    for batch_B in sampler.batches(0):
        labels = labels_N[batch_B].unique().tolist()
        seen.update(labels)
        counts = [seen[label] for label in labels_N.unique().tolist()]
        # a batch may hold the end of one round and the beginning of the next
        assert max(counts) - min(counts) <= 2
        unfinished = [label for label in seen if seen[label] == max(counts)]
        assert max(counts) - min(counts) < 2 or set(unfinished) <= set(labels)


@settings(max_examples=25, deadline=None)
@given(sizes=SIZES, batch_size=st.integers(2, 24), m=st.integers(1, 6), seed=st.integers(0, 99))
def test_up_to_deals_classes_in_rounds_and_cuts_one_only_where_none_fits(
    sizes: list[int], batch_size: int, m: int, seed: int
) -> None:
    assume(not BATCH_SAMPLERS["up_to"].problems(sizes, batch_size, m))
    labels_N = labels_of(sizes, seed)
    share_of = {3 * label + 5: min(m, size) for label, size in enumerate(sizes)}
    sampler = BATCH_SAMPLERS["up_to"](labels_N, batch_size=batch_size, images_per_class=m, seed=seed)
    came = dict.fromkeys(share_of, 0)
    for batch_B in sampler.batches(7):
        counts = Counter(labels_N[batch_B].tolist())
        for label in counts:
            came[label] += 1
        fewest = min(came.values())
        # a batch may hold the end of one round and the beginning of the next
        assert all(times <= fewest + 1 or label in counts for label, times in came.items())
        left_in_round = [label for label, times in came.items() if times == fewest and label not in counts]
        for label, count in counts.items():
            if count < share_of[label] and max(came.values()) > fewest:
                assert all(share_of[other] > count for other in left_in_round)
