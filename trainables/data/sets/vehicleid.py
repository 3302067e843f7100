"""VehicleID (Liu et al. 2016): vehicles seen by surveillance cameras, with three lists of test vehicles.

A model is scored on each list by itself (``recall_at_1-small``), and on the vehicles of all of them (``recall_at_1``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from trainables.data.listing import listed
from trainables.data.sets.published import Classes, Halves, PublishedDataset, counted, grouped
from trainables.mistakes import Mistakes

TRAIN = "train_test_split/train_list.txt"
TESTS = {
    "small": "train_test_split/test_list_800.txt",
    "medium": "train_test_split/test_list_1600.txt",
    "large": "train_test_split/test_list_2400.txt",
}
# The papers print other numbers than the released lists hold. Both are right: what is refused is a damaged list.
TRAINING_CLASSES, TRAINING_IMAGES = (13_164, 13_134), (113_346, 110_178)
TEST_CLASSES = {"small": (800,), "medium": (1_600,), "large": (2_400,)}
TEST_IMAGES = {"small": (6_493, 7_332), "medium": (13_377, 12_995), "large": (19_777, 20_038)}


@dataclass(frozen=True, kw_only=True)
class VehicleID(PublishedDataset):
    """Classes are named by the vehicle's number, in the order of the lists."""

    title: ClassVar[str] = "VehicleID"
    summary: ClassVar[str] = "photographs of 13,164 vehicles to train on, and of 800, 1,600 and 2,400 to test"
    publisher: ClassVar[str] = "https://www.pkuml.org/resources/pku-vehicleid.html (on request)"
    layout: ClassVar[str] = """\
train_test_split/train_list.txt        0279029 23781 (image, vehicle)
train_test_split/test_list_800.txt     the same, and test_list_1600.txt, test_list_2400.txt
image/0279029.jpg"""

    def _needed(self) -> tuple[str, ...]:
        return TRAIN, *TESTS.values()

    def _published(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "training classes": TRAINING_CLASSES,
            "training images": TRAINING_IMAGES,
            **{f"{name} test classes": right for name, right in TEST_CLASSES.items()},
            **{f"{name} test images": right for name, right in TEST_IMAGES.items()},
        }

    def _counts(self, halves: Halves) -> dict[str, int]:
        counts = counted(halves)
        for name, vehicles in self._test_lists.items():
            counts[f"{name} test classes"] = len(vehicles)
            counts[f"{name} test images"] = sum(map(len, vehicles.values()))
        return counts

    def _listed(self) -> Halves:
        test: Classes = {}
        for name, vehicles in self._test_lists.items():
            # A list is a part of the test classes, and so has all images of a vehicle that another list has too.
            if other := [vehicle for vehicle, keys in vehicles.items() if set(test.get(vehicle, keys)) != set(keys)]:
                raise Mistakes(
                    f"{len(other)} vehicles in {TESTS[name]} of {str(self.root)!r} have other images than in a smaller "
                    f"list: {listed(other)}. Restore the published lists."
                )
            test = {**vehicles, **test}
        return self._list(TRAIN), test

    @cached_property
    def _test_lists(self) -> dict[str, Classes]:
        return {name: self._list(path) for name, path in TESTS.items()}

    def _list(self, path: str) -> Classes:
        return grouped((vehicle, f"image/{image}.jpg") for image, vehicle in self._rows(path, "image vehicle"))

    def test_subsets(self) -> dict[str, tuple[str, ...]]:
        """The vehicles of each list, of which none is left out that has images; ``subset`` may leave a list empty."""
        _, test = self.published_split()
        there = frozenset(test)
        found = {name: tuple(filter(there.__contains__, vehicles)) for name, vehicles in self._test_lists.items()}
        return {name: vehicles for name, vehicles in found.items() if vehicles}
