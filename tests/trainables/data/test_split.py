"""The fixed split, recomputed from its definition."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support.refusals import sentences_of

from trainables.common.errors import InvalidInput
from trainables.data.sets.glyphs import Glyphs
from trainables.data.split import ClassSplit, check_classes, merged_sizes, noisy_labels, split_dataset

GLYPHS = Glyphs()
NAMES = [f"class {number}" for number in range(200)]
few_draws = settings(max_examples=25, deadline=None)
ratios = st.sampled_from(["0.5", "0.6", "0.7", "0.75", "0.8", "0.85", "0.9", "0.95", "0.99"])
class_names = st.lists(st.text(st.characters(codec="utf-8"), max_size=5), min_size=10, max_size=60, unique=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed(Glyphs):
    """Classes of one image, called like its class, with groups of images and maybe published halves."""

    names: Sequence[str]
    of_group: Mapping[str, str]
    published: tuple[tuple[str, ...], tuple[str, ...]] | None
    called: str

    def classes(self) -> dict[str, tuple[str, ...]]:
        return {name: (name,) for name in self.names}

    def identity(self) -> str:
        return self.called

    def groups(self) -> Mapping[str, str]:
        return self.of_group

    def published_split(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        return self.published


def split_of(
    names: Sequence[str], groups: Any = (), *, published: Any = None, identity: str = "data", **options: Any
) -> ClassSplit:
    dataset = Listed(names=names, of_group=dict(groups), published=published, called=identity)
    return split_dataset(dataset, dataset.classes(), **options)


def hash_of(name: str, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()


def expected_validation(half: list[str], ratio: str, seed: int) -> set[str]:
    count = max(2, int(len(half) * (1 - Fraction(ratio)) + Fraction(1, 2)))
    hashes = {name: hash_of(name, seed) for name in half}
    return {name for name in half if sum(hashes[other] < hashes[name] for other in half) < count}


def assert_kept(split: ClassSplit) -> None:
    assert ClassSplit.from_json(json.loads(json.dumps(split.to_json()))) == split


@few_draws
@given(names=class_names, ratio=ratios, seed=st.integers(0, 10**6))
def test_the_split_is_what_the_definition_says(names: list[str], ratio: str, seed: int) -> None:
    half = names[: len(names) // 2]
    validation = expected_validation(half, ratio, seed)
    if len(half) - len(validation) < 2:
        with pytest.raises(InvalidInput):
            split_of(names, ratio=float(ratio), seed=seed)
        return
    split = split_of(names, ratio=float(ratio), seed=seed)
    assert list(split.test) == names[len(names) // 2 :]
    assert list(split.validation) == [name for name in half if name in validation]
    assert list(split.train) == [name for name in half if name not in validation]
    assert_kept(split)


@few_draws
@given(names=class_names, folds=st.integers(2, 12), seed=st.integers(0, 10**6))
def test_folds_are_even_and_every_training_class_validates_once(names: list[str], folds: int, seed: int) -> None:
    half = names[: len(names) // 2]
    if folds > len(half) // 2:
        with pytest.raises(InvalidInput, match=rf"split\.folds is {folds} .* give {len(half) // 2} folds at most"):
            split_of(names, ratio=0.9, seed=seed, folds=folds)
        return
    split = split_of(names, ratio=0.9, seed=seed, folds=folds)
    assert (split.train, split.validation, split.test) == (tuple(half), (), tuple(names[len(half) :]))
    assert len(split.folds) == folds
    assert sorted(name for fold in split.folds for name in fold) == sorted(half)
    sizes = [len(fold) for fold in split.folds]
    assert max(sizes) - min(sizes) <= 1
    hashes = [[hash_of(name, seed) for name in fold] for fold in split.folds]
    assert all(max(before) < min(after) for before, after in pairwise(hashes))
    for fold, (train, validation) in zip(split.folds, split.divisions, strict=True):
        assert validation == fold == tuple(name for name in half if name in fold)
        assert train == tuple(name for name in half if name not in fold)
    assert_kept(split)


def expected_halves(half: list[str], units: list[tuple[str, ...]], seed: int) -> list[set[str]]:
    """Deal units in the order of their lowest hashes: to the first half while it has less than half of the classes."""
    dealt: list[set[str]] = [set(), set()]
    training = [unit for unit in units if set(unit) <= set(half)]
    for unit in sorted(training, key=lambda unit: min(hash_of(name, seed) for name in unit)):
        is_full = 2 * len(dealt[0]) >= len(half)
        dealt[is_full].update(unit)
    return dealt


@st.composite
def joined_names(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, ...]]]:
    """Draw class names, and units of one to three classes that share groups."""
    names = draw(class_names)
    units: list[tuple[str, ...]] = []
    while rest := names[sum(map(len, units)) :]:
        units.append(tuple(rest[: draw(st.sampled_from([1, 1, 1, 2, 3]))]))
    return names, units


@few_draws
@given(drawn=joined_names(), ratio=ratios, folds=st.sampled_from([None, 2, 3]), seed=st.integers(0, 10**6))
def test_the_halves_divide_all_training_classes(
    drawn: tuple[list[str], list[tuple[str, ...]]], ratio: str, folds: int | None, seed: int
) -> None:
    names, units = drawn
    joined = [unit for unit in units if len(unit) > 1]
    groups = {name: str(number) for number, unit in enumerate(joined) for name in unit}
    try:
        split = split_of(names, groups, ratio=float(ratio), seed=seed, folds=folds)
    except InvalidInput:
        return
    training = [name for name in names if name not in split.test]
    parts = [set(split.test), *([set(fold) for fold in split.folds] or [set(split.train), set(split.validation)])]
    assert all(any(set(unit) <= part for part in parts) for unit in units)
    largest = max(len(unit) for unit in units if set(unit) <= set(training))
    assert len(names) // 2 <= len(training) < len(names) // 2 + largest
    if len(split.validation) > max(2, int(len(training) * (1 - Fraction(ratio)) + Fraction(1, 2))):
        sizes = sorted(len(unit) for unit in units if set(unit) <= set(split.validation))
        assert sum(sizes[:-1]) < 2, "fewer than two classes fitted"
    expected = expected_halves(training, units, seed)
    if min(map(len, expected)) < 2:
        assert split.halves == ()
        return
    assert [set(half) for half in split.halves] == expected
    assert all(list(half) == [name for name in training if name in half] for half in split.halves)
    assert sorted(name for half in split.halves for name in half) == sorted(training)
    first, second = map(len, split.halves)
    assert abs(first - second) < 2 * max(map(len, units)), "they differ by more than a unit that stays together"
    if not joined:
        assert first - second in (0, 1)
    assert all(sum(not half.isdisjoint(unit) for half in map(set, split.halves)) <= 1 for unit in joined)
    assert split.half(1) == (split.halves[1], split.halves[0])
    assert split.half(2) == (split.halves[0], split.halves[1])
    assert_kept(split)


def test_the_halves_depend_on_the_seed_alone() -> None:
    halves = split_of(NAMES, ratio=0.9, seed=0).halves
    for changes in ({"ratio": 0.5}, {"folds": 7}, {"merge": 3}, {"label_noise": 0.2}):
        options: dict[str, Any] = {"ratio": 0.9, "seed": 0, **changes}
        assert split_of(NAMES, **options).halves == halves
    assert split_of(NAMES, ratio=0.9, seed=1).halves != halves


def test_two_classes_are_left_as_they_are_learned() -> None:
    assert [len(half) for half in split_of(NAMES[:8], ratio=0.5, seed=0).halves] == [2, 2]
    assert split_of(NAMES[:16], ratio=0.5, seed=0, merge=3).halves, "four classes are learned as two"
    assert split_of(NAMES[:12], ratio=0.5, seed=0, merge=2).halves
    assert not split_of(NAMES[:12], ratio=0.6, seed=0, merge=3).halves, "three are learned as one"
    assert split_of(NAMES[:20], ratio=0.8, seed=0, merge=7).merge == 7
    with pytest.raises(InvalidInput, match=r"split\.merge is 8 and 8 classes train at once.* give less than 8\."):
        split_of(NAMES[:20], ratio=0.8, seed=0, merge=8)
    with pytest.raises(InvalidInput, match=r"split\.merge is 5 and 5 classes train at once"):
        split_of(NAMES[:20], ratio=0.9, seed=0, folds=2, merge=5)


@few_draws
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=30), merge=st.integers(1, 9))
def test_merging_keeps_every_image_and_the_order_of_classes(sizes: list[int], merge: int) -> None:
    groups = [label // merge for label, size in enumerate(sizes) for _ in range(size)]
    assert merged_sizes(sizes, merge) == [groups.count(group) for group in range(-(-len(sizes) // merge))]


def test_published_halves_are_kept() -> None:
    published = (tuple(NAMES[150:50:-1]), tuple(NAMES[:50]))
    split = split_of(NAMES, published=published, ratio=0.9, seed=3)
    assert split.test == published[1]
    assert len(split.validation) == 10
    assert {*split.train, *split.validation} == set(published[0])
    with pytest.raises(InvalidInput, match=r"1 of the 150 classes.*class 7\."):
        split_of(NAMES[:7] + NAMES[8:], published=published, ratio=0.9, seed=3)


def test_the_split_never_changes_and_digests_tell_apart_what_differs() -> None:
    split = split_of(NAMES, ratio=0.9, seed=0)
    assert split.validation == tuple(f"class {number}" for number in (2, 7, 10, 17, 23, 29, 37, 38, 66, 72))
    assert split.digest == "8519fcb2f097d9e49266bc1ce5e072efe63503b6369450da25bc54a79f636781"
    changes: tuple[dict[str, Any], ...] = (
        {"seed": 1}, {"ratio": 0.8}, {"identity": "other data"}, {"folds": 10}, {"folds": 5}, {"merge": 3},
        {"label_noise": 0.2},
    )  # fmt: skip
    others = [split_of(NAMES, **{"ratio": 0.9, "seed": 0, **change}) for change in changes]
    others += [split_of(NAMES[:-1], ratio=0.9, seed=0), dataclasses.replace(split, train=split.train[::-1])]
    assert len({split.digest, *(other.digest for other in others)}) == len(others) + 1


def test_the_test_digest_is_of_the_test_classes_alone() -> None:
    split = split_of(NAMES, ratio=0.9, seed=0)
    for ratio in (0.5, 0.7, 0.8, 0.95):
        assert split_of(NAMES, ratio=ratio, seed=5).test_digest == split.test_digest
    options: dict[str, Any] = {"folds": 4, "merge": 2, "label_noise": 0.1}
    assert split_of(NAMES, ratio=0.9, seed=0, **options).test_digest == split.test_digest
    assert split.to_json()["test_digest"] == split.test_digest
    assert dataclasses.replace(split, test=split.test[::-1]).test_digest == split.test_digest
    assert dataclasses.replace(split, test=split.test[1:]).test_digest != split.test_digest
    assert dataclasses.replace(split, identity="other").test_digest != split.test_digest


def test_an_edited_split_is_refused() -> None:
    content = split_of(NAMES, ratio=0.9, seed=0).to_json()
    with pytest.raises(InvalidInput, match="was edited"):
        ClassSplit.from_json({**content, "test": content["test"][1:]})
    with pytest.raises(InvalidInput, match="no 'validation'"):
        ClassSplit.from_json({name: value for name, value in content.items() if name != "validation"})


def test_too_few_classes_and_other_ratios_are_refused_with_the_numbers() -> None:
    for classes in (0, 1, 3, 7):
        with pytest.raises(InvalidInput, match=rf"has {classes} class(es)?: {classes // 2} in the training half"):
            split_of(NAMES[:classes], ratio=0.9, seed=0)
    assert split_of(NAMES[:8], ratio=0.9, seed=0).train
    for ratio in (0, 1, -0.1, 1.5, float("nan")):
        with pytest.raises(InvalidInput, match=rf"split\.ratio must be between 0 and 1, such as 0\.9; it is {ratio}"):
            split_of(NAMES, ratio=ratio, seed=0)


def test_every_class_needs_an_image_and_every_part_something_to_find() -> None:
    split = split_of(NAMES, ratio=0.9, seed=0)
    classes = dict.fromkeys(NAMES, ("a", "b"))
    check_classes(split, GLYPHS, classes | {split.train[0]: ("a",), split.validation[0]: ("a",), split.test[0]: ("a",)})
    lonely = dict.fromkeys(split.validation, ("a",))
    validation, test = sentences_of(lambda: check_classes(split, GLYPHS, classes | lonely | {split.test[0]: ()}))
    assert "None of the 10 validation classes has 2 images" in validation
    assert f"1 of the 100 test classes have no image: {split.test[0]}" in test

    folded = split_of(NAMES, ratio=0.9, seed=0, folds=5)
    with pytest.raises(InvalidInput, match="None of the 20 validation classes has 2 images"):
        check_classes(folded, GLYPHS, classes | dict.fromkeys(folded.folds[3], ("a",)))


def test_label_noise_is_symmetric() -> None:
    """Of 20 classes of 500 images a third is wrong, by no more than five standard deviations in any class or pair."""
    labels = np.repeat(np.arange(20), 500)
    keys = [f"{label}/{number}" for number, label in enumerate(labels)]
    noisy = np.array(noisy_labels(labels.tolist(), keys, rate=1 / 3, seed=0))
    confusion = np.zeros((20, 20))
    np.add.at(confusion, (labels, noisy), 1)
    right, wrong = 500 * 2 / 3, 500 / 3 / 19
    assert np.abs(np.diag(confusion) - right).max() < 5 * np.sqrt(right / 3)
    assert np.abs(confusion[~np.eye(20, dtype=bool)] - wrong).max() < 5 * np.sqrt(wrong)


def test_the_images_of_a_lower_rate_are_wrong_at_a_higher_one() -> None:
    labels, keys = [0, 1, 2, 3] * 50, [str(number) for number in range(200)]

    def wrong(rate: float, seed: int = 3) -> set[str]:
        noisy = noisy_labels(labels, keys, rate=rate, seed=seed)
        return {key for key, before, after in zip(keys, labels, noisy) if before != after}

    assert not wrong(0.0)
    assert wrong(0.2) < wrong(0.5) < wrong(0.9)
    assert wrong(0.2, seed=4) != wrong(0.2)
