"""The contract of a training of a user's own finds each mistake, and none in the examples."""

import pytest

from spaces.contract.check_part import check_part

ALIKE = "An item's embedding does not depend on the other items or their order."
RECORDS = {"name": "support.own_trainings:Records"}


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("examples.texts:LanguageTraining", {"name": "examples.texts:Languages"}),
        ("examples.function_training:contrast", {}),
        ("examples.trainers.discriminant:discriminant", {}),
        ("support.own_trainings:Scales", RECORDS),
        ("support.own_trainings:drawn_scales", RECORDS),
    ],
)
def test_a_good_training_passes(path: str, options: dict[str, str]) -> None:
    outcomes = list(check_part(path, options))
    assert len(outcomes) == 7
    assert [outcome.sentence for outcome in outcomes if not outcome.ok] == []


@pytest.mark.parametrize(
    ("name", "failed", "sentence"),
    [
        ("Unseeded", "The same seed and items give the same numbers, within its tolerance.", "In epoch 1 loss was "),
        ("Forgets", "Saved and loaded, it continues with the same numbers.", "save all that training needs"),
        *((name, ALIKE, "compute each from its item alone") for name in ("Sorted", "Smoothed", "Centred")),
        (
            "NotAtItsEnd",
            "Both ends of every range and every choice can be set up.",
            "lr = 1.0 is in its space and raises",
        ),
        (
            "PredictsOthers",
            "A predictor gives the embeddings of the saved training.",
            "from embed after load; return the same numbers",
        ),
        ("Incomplete", "It can be loaded.", "has no method save"),
        ("Short", "It trains two epochs with its defaults.", "embed must return a row for each of 12 items"),
    ],
)
def test_a_mistake_is_found(name: str, failed: str, sentence: str) -> None:
    found = {outcome.what: outcome.sentence for outcome in check_part(f"support.own_trainings:{name}", RECORDS)}
    assert sentence in found[failed]
