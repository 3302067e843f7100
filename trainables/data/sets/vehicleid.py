"""VehicleID (Liu et al. 2016): vehicles seen by surveillance cameras, with three lists of test vehicles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trainables.data.sets.published import Classes, Halves, PublishedDataset, grouped
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
    summary: ClassVar[str] = "photographs of 13,164 vehicles to train on, and of 800, 1,600 or 2,400 to test"
    publisher: ClassVar[str] = "https://www.pkuml.org/resources/pku-vehicleid.html (on request)"
    layout: ClassVar[str] = """\
train_test_split/train_list.txt        0279029 23781 (image, vehicle)
train_test_split/test_list_800.txt     the same, and test_list_1600.txt, test_list_2400.txt
image/0279029.jpg"""

    test: str = field(default="small", metadata={"about": f"the test vehicles: {', '.join(TESTS)}"})

    def __post_init__(self) -> None:
        if self.test not in TESTS:
            raise Mistakes(f"dataset.test must be one of {', '.join(TESTS)}; it is {self.test!r}.")
        super().__post_init__()

    def _needed(self) -> tuple[str, ...]:
        return TRAIN, TESTS[self.test]

    def _published(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "training classes": TRAINING_CLASSES,
            "test classes": TEST_CLASSES[self.test],
            "training images": TRAINING_IMAGES,
            "test images": TEST_IMAGES[self.test],
        }

    def _listed(self) -> Halves:
        return self._half(TRAIN), self._half(TESTS[self.test])

    def _half(self, name: str) -> Classes:
        return grouped((vehicle, f"image/{image}.jpg") for image, vehicle in self._rows(name, "image vehicle"))
