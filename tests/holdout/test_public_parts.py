"""``holdout.parts`` has what refusals and pages name."""

import re
from pathlib import Path
from typing import Any

import pytest

import holdout.parts
from search.tables import ENGINES
from trainables.data import DATASETS
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.errors import InvalidInput
from trainables.losses import LOSSES
from trainables.parts import PartTable, load_part
from trainables.training.trainable import Trainable

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("table", [LOSSES, DATASETS, BATCH_SAMPLERS, ENGINES], ids=lambda table: table.kind)
def test_a_refusal_names_a_base_class_that_can_be_imported(table: PartTable[Any, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"derives from holdout\.parts\.\w+;") as error:
        table["pathlib:Path"]
    (name,) = re.findall(r"holdout\.parts\.(\w+);", str(error.value))
    (row, *_) = table
    assert issubclass(table[row], getattr(holdout.parts, name))


def test_so_does_that_of_a_training() -> None:
    with pytest.raises(InvalidInput, match=r"derives from holdout\.parts\.Trainable;"):
        load_part("pathlib:Path", kind="trainable", base=Trainable)
    assert holdout.parts.Trainable is Trainable


def test_the_pages_name_what_is_there() -> None:
    pages = "".join(page.read_text() for page in ROOT.glob("docs/**/*.md"))
    found = set(re.findall(r"holdout\.parts\.(\w+)", pages))
    assert found
    assert found <= set(holdout.parts.__all__)
