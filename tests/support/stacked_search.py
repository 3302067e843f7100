"""A small search that can be trained in stacks, with results that do not depend on the stack size."""

from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from support.commands import stored, write_search
from support.small_search import small_search

from search.trials import epochs_of

STACK = 4
TRIALS = 5
EPOCHS = 6
STUDIES = ("proxy_anchor", "proxy_anchor@confirm", "proxy_anchor@final")


def stackable_search(path: Path, engine: str, **resources: Any) -> Path:
    """Return a search file whose proposals do not depend on the number of parallel trials."""
    content = small_search(
        path,
        dataset={"name": "glyphs", "num_classes": 16, "images_per_class": 8},
        losses=["proxy_anchor"],
        search={"trials": TRIALS, "sampler": "random", "pruner": "none", "max_concurrent": STACK},
        selection={"finalists": 1, "seeds": 2},
        final={"seeds": STACK},
        resources={"engine": engine, **resources},
    )
    content["training"] |= {"epochs": EPOCHS, "lr": 1e-4}  # with 1e-3 rounding grows to a percent, as with threads
    return write_search(path, content)


def assert_same_studies(
    by_itself: Path, together: Path, search: str = "small", *, epochs: int = EPOCHS, rounding: float = 1e-4
) -> None:
    """Assert that two runs folders hold the same trials and epochs, up to rounding."""
    for study in STUDIES:
        ones, others = stored(by_itself, search, study), stored(together, search, study)
        assert len(ones) == len(others) > 0
        for one, other in zip(ones, others, strict=True):
            assert other.state == TrialState.COMPLETE
            assert other.params == one.params
            assert other.value == pytest.approx(one.value, abs=rounding)
            assert other.user_attrs["seed"] == one.user_attrs["seed"]
            assert [entry["epoch"] for entry in epochs_of(other)] == list(range(1, epochs + 1))
            for mine, theirs in zip(epochs_of(one), epochs_of(other), strict=True):
                assert theirs["loss"] == pytest.approx(mine["loss"], rel=rounding)
                assert theirs["metrics"] == pytest.approx(mine["metrics"], abs=rounding)
                assert theirs["batches"] == mine["batches"]


def sizes(runs: Path, study: str) -> list[int]:
    """Return the number of trainings stepped together, for every epoch of a study."""
    return [entry.get("together", 1) for trial in stored(runs, "small", study) for entry in epochs_of(trial)]
