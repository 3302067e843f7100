"""Splits by group and by time: what is divided, what the items' classes are, and what is refused."""

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from trainables.data.dataset import ItemDataset
from trainables.data.sets.features import FeatureFile
from trainables.data.sets.manifest import Manifest
from trainables.data.split import ClassSplit, split_dataset
from trainables.data.store.spec import StoreSpec
from trainables.data.store.view import Store
from trainables.data.units import UnitDataset
from trainables.mistakes import Mistakes

LABELS, USERS, EACH = 3, 9, 2


@dataclass(frozen=True, kw_only=True)
class Letters(ItemDataset):
    """Items ``label/user/number``, with their users as groups and a time."""

    summary: ClassVar[str] = "letters"

    grouped: bool = True
    dated: bool = True
    relabelled: bool = False

    def classes(self) -> Mapping[str, tuple[str, ...]]:
        names = [f"{user}/{number}" for user in range(USERS) for number in range(EACH)]
        found = {f"label {label}": [f"{label}/{name}" for name in names] for label in range(LABELS)}
        if self.relabelled:
            found["label 1"].append(found["label 0"].pop(0))
        return {name: tuple(keys) for name, keys in found.items()}

    def groups(self) -> Mapping[str, str]:
        return {key: f"user {key.split('/')[1]}" for key in self._keys} if self.grouped else {}

    def times(self) -> Mapping[str, str | float]:
        times = {key: (date(2024, 1, 1 + int(key.split("/")[1])).isoformat(), int(key[-1])) for key in self._keys}
        return {key: f"{day}T1{hour}:30" if hour else day for key, (day, hour) in times.items()} if self.dated else {}

    @property
    def _keys(self) -> list[str]:
        return [key for keys in self.classes().values() for key in keys]

    def identity(self) -> str:
        return "letters"

    def read(self, key: str) -> str:
        return f"item {key}"


def by_group(**options: Any) -> UnitDataset:
    return UnitDataset(source=Letters(), by="group", **options)


def by_time(until: Any, test_from: Any, **options: Any) -> UnitDataset:
    return UnitDataset(source=Letters(**options), by="time", until=until, test_from=test_from)


def test_groups_are_divided_by_the_rule_of_classes() -> None:
    split = split_dataset(by_group(), ratio=0.6, seed=3)
    half = [f"user {user}" for user in range(USERS // 2)]
    drawn = sorted(half, key=lambda name: hashlib.sha256(f"3:{name}".encode()).digest())[:2]
    assert split.validation == tuple(name for name in half if name in drawn)
    assert split.train == tuple(name for name in half if name not in drawn)
    assert split.test == tuple(f"user {user}" for user in range(USERS // 2, USERS))
    assert split.by == "group"
    assert ClassSplit.from_json(split.to_json()) == split


def test_an_item_of_a_group_is_in_its_part_alone() -> None:
    dataset = by_group()
    keys = {name: set(keys) for name, keys in dataset.classes().items()}
    assert len(keys) == USERS
    assert sum(map(len, keys.values())) == LABELS * USERS * EACH
    assert all(key.split("/")[1] == name.removeprefix("user ") for name, found in keys.items() for key in found)


def test_folds_deal_groups() -> None:
    split = split_dataset(by_group(), ratio=0.9, seed=0, folds=2)
    assert sorted(name for fold in split.folds for name in fold) == sorted(split.train)


def test_named_groups_are_the_parts() -> None:
    split = split_dataset(by_group(validation=("user 8",), test=("user 0", "user 4")), ratio=0.9, seed=0)
    assert (split.validation, split.test) == (("user 8",), ("user 0", "user 4"))
    assert len(split.train) == USERS - 3


def test_time_divides_days() -> None:
    split = split_dataset(by_time("2024-01-04", "2024-01-07"), ratio=0.9, seed=0)
    days = [date(2024, 1, day).isoformat() for day in range(1, 10)]
    assert (split.train, split.validation, split.test) == (tuple(days[:3]), tuple(days[3:6]), tuple(days[6:]))
    assert split.ratio == 0.5


def test_numbers_are_times_in_their_order(tmp_path: Path) -> None:
    years = np.array([2009, 2010, 2011, 998, 2012, 2013], dtype=np.int64)
    np.savez(tmp_path / "f.npz", embeddings=np.eye(6), labels=["a", "b"] * 3, times=years, groups=years % 2)
    source = FeatureFile(file=tmp_path / "f.npz")
    dataset = UnitDataset(source=source, by="time", until=2011, test_from="2012")
    split = split_dataset(dataset, ratio=0.9, seed=0)
    assert (split.train, split.validation, split.test) == (("998", "2009", "2010"), ("2011",), ("2012", "2013"))
    assert source.groups() == {f"row {row}": str(year % 2) for row, year in enumerate(years)}


def test_a_manifest_has_times_and_groups(tmp_path: Path) -> None:
    rows = [f"{row}.jpg,class {row % 2},shop {row // 2},2024-0{1 + row // 2}-01" for row in range(8)]
    for row in range(8):
        (tmp_path / f"{row}.jpg").touch()
    (tmp_path / "list.csv").write_text("\n".join(("path,class,group,time", *rows)))
    source = Manifest(file=tmp_path / "list.csv")
    assert list(UnitDataset(source=source, by="group").classes()) == [f"shop {number}" for number in range(4)]
    dataset = UnitDataset(source=source, by="time", until="2024-02-01", test_from="2024-03-01")
    assert [len(part) for part in dataset.given_parts() or ()] == [1, 1, 2]
    assert dataset.target_names() == ("class 0", "class 1")


def test_the_store_of_a_part_has_its_items_with_the_same_class_names(tmp_path: Path) -> None:
    dataset = by_group()
    split = split_dataset(dataset, ratio=0.6, seed=0)
    seen: dict[str, set[str]] = {}
    for part, names in (("train", split.train), ("test", split.test)):
        spec = StoreSpec(dataset=dataset, class_names=names, short_side=8, cache=str(tmp_path))
        view = Store.open(spec.make()).subset(names)
        assert view.targets is not None
        labels, class_names = view.targets
        assert class_names == ("label 0", "label 1", "label 2")
        assert [f"{label}" for label in labels.tolist()] == [key.split("/")[0] for key in view.image_keys]
        assert view.items == [f"item {key}" for key in view.image_keys]
        seen[part] = set(view.image_keys)
    assert not seen["train"] & seen["test"]


def test_another_class_of_an_item_is_another_split_and_store(tmp_path: Path) -> None:
    splits, stores = set(), set()
    for relabelled in (False, True):
        dataset = UnitDataset(source=Letters(relabelled=relabelled), by="group")
        splits.add(split_dataset(dataset, ratio=0.6, seed=0).digest)
        spec = StoreSpec(dataset=dataset, class_names=("user 0", "user 1"), short_side=8, cache=str(tmp_path))
        stores.add(spec.make())
    assert len(splits) == len(stores) == 2


def test_splits_by_different_units_differ() -> None:
    grouped = split_dataset(by_group(), ratio=0.6, seed=0)
    assert replace(grouped, by="time").digest != grouped.digest
    assert grouped.test_digest != replace(grouped, identity="letters").test_digest


def test_it_is_sent_without_what_it_has_read() -> None:
    dataset = by_group()
    before = len(pickle.dumps(dataset))
    dataset.classes()
    assert len(pickle.dumps(dataset)) == before
    assert pickle.loads(pickle.dumps(dataset)) == dataset


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        (UnitDataset(source=Letters(grouped=False), by="group"), "no item of the data set has a group; give groups"),
        (by_time("2024-01-04", "2024-01-07", dated=False), "no item of the data set has a time; give times"),
        (by_group(validation=("user 9",), test=("user 1",)), "split.validation: there is no group user 9"),
        (by_group(validation=("user 1",), test=("user 1",)), "split: user 1 validates and tests"),
        (
            by_group(validation=("user 0",), test=tuple(f"user {user}" for user in range(1, USERS))),
            "all groups validate or test, and none is left to train",
        ),
        (by_time("2024-01-07", "2024-01-04"), "split.until is 2024-01-07 and test_from 2024-01-04"),
        (by_time(4, "2024-01-04"), "split.until is 4, and the times are such as 2024-01-01; give one like these."),
        (by_time("soon", "2024-01-04"), "split.until is 'soon', and the times are such as"),
        (
            by_time("2023-01-01", "2024-01-04"),
            "split: no item is before until (2023-01-01); the times are from 2024-01",
        ),
        (by_time("2024-01-04", "2025-01-01"), "no item is at or after test_from (2025-01-01)"),
    ],
)
def test_a_split_that_cannot_be_made_is_a_sentence(dataset: UnitDataset, sentence: str) -> None:
    with pytest.raises(Mistakes) as refused:
        split_dataset(dataset, ratio=0.6, seed=0)
    assert any(sentence in found for found in refused.value.sentences), refused.value.sentences


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (
            ["2024-01-01", "yesterday", "2024-01-02", "2024-01-03"],
            "The time 'yesterday' is neither a number nor a date",
        ),
        (["2024-01-01", "7", "2024-01-02", "8"], "The times are dates (2024-01-01) and numbers (7); give one kind."),
    ],
)
def test_times_that_cannot_be_read_are_a_sentence(tmp_path: Path, times: list[str], sentence: str) -> None:
    np.savez(tmp_path / "f.npz", embeddings=np.eye(4), labels=["a", "b"] * 2, times=times)
    dataset = UnitDataset(source=FeatureFile(file=tmp_path / "f.npz"), by="time", until="1", test_from="2")
    with pytest.raises(Mistakes) as refused:
        dataset.classes()
    assert refused.value.sentences[0].startswith(sentence)


def test_classes_that_all_share_groups_are_told_of_the_other_split() -> None:
    with pytest.raises(Mistakes, match="or split by group"):
        split_dataset(Letters(), ratio=0.6, seed=0)
