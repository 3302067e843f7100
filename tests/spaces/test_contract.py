"""The checks of a part: good parts pass, every built-in loss among them, and broken ones give a sentence."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import own_parts, own_trainings
from support.image_stores import build_store
from support.refusals import sentences_of

from spaces.contract.check_part import check_part
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.store.view import Store
from trainables.losses import LIBRARY, LOSSES
from trainables.metrics import SUPERCLASSES, all_metrics

ALIKE = "Its saved model embeds an item as the trained one did, whatever the other items are."
ITEMS = "Its items are uint8 RGB, float32 features or of a known kind, the same each time."
OWN, TRAININGS = "support.own_parts", "support.own_trainings"
RECORDS = {"name": "support.own_trainings:Records"}
OPTIONS: dict[str, dict[str, object]] = {
    f"{TRAININGS}:Scales": {**RECORDS},
    f"{TRAININGS}:drawn_scales": {**RECORDS},
    "examples.texts:LanguageTraining": {"name": "examples.texts:Languages", "languages": 6, "sentences": 6},
}


def wrong(name: str, options: Mapping[str, object] | None = None) -> dict[str, str]:
    outcomes = list(check_part(name, options, image_size=32))
    assert all(outcome.ok == (outcome.found == "") for outcome in outcomes)
    return {outcome.check: outcome.found for outcome in outcomes if not outcome.ok}


@pytest.mark.parametrize(
    "name",
    [
        *LOSSES, *BATCH_SAMPLERS, *all_metrics((1, 10)), *SUPERCLASSES, *OPTIONS, "glyphs", "convnet", "bninception",
        "examples.circle_loss:CircleLoss", "examples.rings:Rings", "examples.tiny_network:TinyNetwork",
        "examples.function_training:contrast", "examples.trainers.discriminant:discriminant",
        f"{LIBRARY}.losses:MultiSimilarityLoss",
        *(f"{OWN}:{name}" for name in ["Pull", "Counting", "Greys", "Grouped", "Tiny", "TINY", "Shuffled", "spread"]),
    ],
)  # fmt: skip
def test_a_good_part_keeps_the_contract(name: str) -> None:
    assert wrong(name, OPTIONS.get(name)) == {}


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("WithoutSpace", {"loaded": "must declare its search space .* it has none. Write for example `space = "}),
        (
            "Ordered",
            {
                "order": "another order",
                "attached to the graph for a batch of one class": "not attached to the graph",
                "finite differences": r"its value is .* it rises by .* by its gradient, .*: check for detached",
            },
        ),
        ("Filled", {"singletons": r"loss is 1e\+09 for the labels \[0, 3, 5, 11\]: leave out anchors without a pair"}),
        ("Raising", {"bfloat16": "IndexError: out of sorts", "order": "IndexError", "state_dict": ""}),
        (
            "ShortRange",
            {"names": "bend, which its constructor does not take", "ends": r"power = -1\.0 is in its space"},
        ),
        ("CountingWrong", {"reports used pairs": "give an integer, or an integer 0-dim tensor"}),
        ("Proxies", {"learned": "names no learning rate for its proxies"}),
        ("Misfit", {"maps of": r"must become maps \[2, 7, h, w\]; they become \[2, 5, 4, 4\]"}),
        ("Blank", {"different maps": "Of the maps of two images, all 2 embeddings have the same direction."}),
        (
            "Misgrouped",
            {
                "each image once": r"neither query nor gallery \(1\): \'probe\'\..* classes without a superclass \(4\)",
                "subsets": "Classes of the test subset 'few' that are not published test classes: 4",
            },
        ),
        ("InOrder", {"differ": "the same batches"}),
        ("first_row", {"order": "with the images in another order"}),
        ("map_at_r", {"finite": "has the name of 'map_at_r'"}),
        ("Nothing", {"loaded": "has no Nothing"}),
        # Trainings.
        ("Unseeded", {"same seed and items": "In epoch 1 loss was "}),
        ("Forgets", {"continues with the same numbers": "save all that training needs"}),
        ("Shifted", {ALIKE: "the saved model is not the one that was trained"}),
        *((name, {ALIKE: "Compute each from its item alone"}) for name in ("Sorted", "Smoothed", "Centred")),
        ("NotAtItsEnd", {"ends": r"lr = 1\.0 is in its space and raises"}),
        ("PredictsOthers", {"predictor": "from embed after load; return the same numbers"}),
        ("Constant", {"two epochs": r"all 12 embeddings have the same direction\."}),
        ("Incomplete", {"loaded": "has no method save"}),
        ("Short", {"two epochs": "embed must return a row for each of 12 items"}),
    ],
)
def test_a_broken_part_is_described(name: str, sentences: dict[str, str]) -> None:
    is_training = hasattr(own_trainings, name) and not hasattr(own_parts, name)
    found = wrong(f"{TRAININGS}:{name}", RECORDS) if is_training else wrong(f"{OWN}:{name}")
    for words, sentence in sentences.items():
        about = [said for what, said in found.items() if words in what]
        if sentence:
            assert about, found
            assert re.search(sentence, about[0]), about
        else:
            assert not about


def test_a_data_set_is_made_with_its_options() -> None:
    assert "must return uint8" in wrong(f"{OWN}:Greys", {"wrong": True})[ITEMS]
    assert "TypeError" in wrong(f"{OWN}:Greys", {"shade": 3})["It can be loaded."]


def test_checks_leave_the_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    list(check_part("triplet"))
    assert torch.equal(torch.rand(3), expected)


IMAGE = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
NO_IMAGES: dict[str, object] = {
    "Image": Image.fromarray(IMAGE),
    "ndarray of uint8, 9 × 7": IMAGE[..., 0],
    "ndarray of uint8, 9 × 7 × 4": np.dstack([IMAGE, IMAGE[..., 0]]),
    "ndarray of float64, 9 × 7 × 3": IMAGE / 255,
    "ndarray of uint8, 0 × 7 × 3": IMAGE[:0],
    "ndarray of uint8, 3 × 9 × 7": IMAGE.transpose(2, 0, 1),
    "Tensor of torch.uint8, 9 × 7 × 3": torch.from_numpy(IMAGE),
    "NoneType": None,
}
"""What the ``read`` of a data set must not return, by its description in the sentence."""


class Given(own_parts.Greys):
    given: object = None

    def read(self, key: str) -> np.ndarray:
        return self.given  # type: ignore[return-value]


def test_what_read_returns_is_stored_as_it_is_or_refused(tmp_path: Path) -> None:
    """An image may be a view of another one, in any order in memory."""
    build = partial(build_store, Given(), list(Given().classes())[:2], short_side=64)
    for returned, Given.given in NO_IMAGES.items():
        (sentence,) = sentences_of(partial(build, cache=tmp_path / "wrong"))
        assert sentence.startswith("Given.read must return uint8, height × width × 3 (RGB), as of np.asarray(")
        assert sentence.endswith(f"; it returned {returned}.")
    assert {path.suffix for path in (tmp_path / "wrong").iterdir()} <= {".lock", ".used"}
    for number, image in enumerate((IMAGE, IMAGE[::-1, ::-1], np.asfortranarray(IMAGE), IMAGE[..., ::-1])):
        Given.given = image
        found = Store(build(cache=tmp_path / str(number))).gather(torch.tensor([0]), torch.tensor([[0, 0, 9, 7]]))
        assert np.array_equal(found[0].permute(1, 0, 2).numpy(), image)
