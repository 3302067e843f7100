"""Every pruner's plan, beside what Optuna then does."""

from search.pruners import PRUNERS, SuccessiveHalving


def test_rungs_double_from_an_eighth_of_the_epochs() -> None:
    assert SuccessiveHalving(steps=8).rungs == (2, 4)
    assert SuccessiveHalving(steps=60).rungs == (8, 16, 32)
    assert SuccessiveHalving(steps=2).rungs == ()


def test_plans_are_told_in_words() -> None:
    plans = {name: pruner(steps=8).plan for name, pruner in PRUNERS.items()}
    assert plans == {
        "asha": "after epochs 2, 4 the best half goes on",
        "hyperband": "40% of the trials are compared after epochs 2, 4, 30% of the trials are compared after epoch 4, "
        "30% are never pruned; each time the best half of a bracket goes on",
        "median": "after each epoch from 2 on, once 4 trials are complete, what is below their median at that epoch "
        "ends",
        "none": "no trial is pruned",
    }


def test_folds_are_compared_like_epochs() -> None:
    assert PRUNERS["asha"](steps=10, unit="fold").plan == "after folds 2, 4, 8 the best half goes on"
    assert PRUNERS["asha"](steps=2, unit="fold").plan == "no trial is pruned, 2 folds are too few"
