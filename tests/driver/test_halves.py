"""Searches whose choice is confirmed on halves of the training classes: recomputed from their stored trials."""

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import FrozenTrial, TrialState
from support.commands import stored, summary
from support.finished_search import finish
from support.small_search import GLYPHS

from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from search.trials import epochs_of
from trainables.common.errors import InvalidInput

LOSSES = ("pnp", "triplet")
TRIALS, FINALISTS = 4, 2
TRAINING = {"epochs": 2, "batch_size": 20, "images_per_class": 5}


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of 20 classes that differ in some directions only; the classes have 6 to 9 items."""
    rng = np.random.default_rng(0)
    sizes = [6 + number % 4 for number in range(20)]
    centres = np.repeat(rng.normal(size=(20, 12)) * (np.arange(12) < 6), sizes, axis=0)
    path = tmp_path_factory.mktemp("features") / "mine.npz"
    labels = np.repeat([f"class-{number:02d}" for number in range(20)], sizes)
    np.savez(path, embeddings=centres + rng.normal(size=centres.shape), labels=labels)
    return path


def search_file(features: Path, name: str, **changes: Any) -> dict[str, Any]:
    """Return a search on features whose stages end with the choice: 10 classes train and validate."""
    return {
        "name": name,
        "dataset": {"name": "features", "file": str(features)},
        "model": {"embedding_dim": 8},
        "training": TRAINING,
        "losses": list(losses_of(name)),
        "search": {"trials": TRIALS, "pruner": "none"},
        "selection": {"finalists": FINALISTS},
        "split": {"ratio": 0.7},
        "stages": ["search", "select"],
        **changes,
    }


def losses_of(name: str) -> tuple[str, ...]:
    return LOSSES if name == "halves" else ("pnp",)


VARIANTS: dict[str, dict[str, Any]] = {
    "halves": {},
    "split": {"selection": {"finalists": FINALISTS, "on": "split"}},
    "folds": {
        "split": {"folds": 2},
        "selection": {"finalists": FINALISTS, "on": "halves", "seeds": 2, "better_by": 0.0},
    },
    "bound": {"search": {"trials": TRIALS, "pruner": "none", "constraints": {"recall_at_1": ">= 0"}, "seed": 1}},
    "clusters": {
        "search": {"trials": TRIALS, "pruner": "none", "objective": "nmi"},
        "training": {**TRAINING, "batch_size": 35},  # all 7 classes that train; a half fills no whole batch
    },
}
SEEDS = {"folds": 2, "split": 2}


@pytest.fixture(scope="module")
def runs(features: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of all variants, chosen; not to be changed."""
    runs = tmp_path_factory.mktemp("runs")
    for name, changes in VARIANTS.items():
        finish(runs, search_file(features, name, **changes))
    return runs


def record_of(runs: Path, name: str, file: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((runs / name / f"{file}.json").read_text())
    return content


def objective_of(name: str) -> str:
    return "nmi" if name == "clusters" else "map_at_r"


def best_records(trial: FrozenTrial, objective: str) -> list[Any]:
    """Return for each fold the first record of the highest objective."""
    folds: dict[int | None, list[Any]] = {}
    for record in epochs_of(trial):
        folds.setdefault(record.get("fold"), []).append(record)
    return [max(records, key=lambda record: record["metrics"][objective]) for records in folds.values()]


@pytest.mark.parametrize("name", VARIANTS)
def test_each_finalist_trains_both_halves_with_shared_seeds(runs: Path, name: str) -> None:
    split = record_of(runs, name, "split")
    of_losses = []
    for loss in losses_of(name):
        searched, confirmed = stored(runs, name, loss), stored(runs, name, f"{loss}@confirm")
        assert all(trial.state == TrialState.COMPLETE for trial in confirmed)
        by_finalist: dict[int, list[tuple[int, int | None]]] = {}
        for trial in confirmed:
            attributes = trial.user_attrs
            assert trial.params == searched[attributes["source_trial"]].params
            by_finalist.setdefault(attributes["source_trial"], []).append((attributes["seed"], attributes.get("half")))
        assert 0 in by_finalist
        assert FINALISTS <= len(by_finalist) <= FINALISTS + 1
        if name in ("halves", "split", "folds"):
            value = {trial.number: trial.value or 0.0 for trial in searched}
            best = sorted(value, key=lambda number: (-value[number], number))[:FINALISTS]
            assert set(by_finalist) == {0, *best}
        (pairs,) = {tuple(pairs) for pairs in by_finalist.values()}
        seeds = list(dict.fromkeys(seed for seed, _ in pairs))
        assert len(seeds) == SEEDS.get(name, 1)
        assert not {trial.user_attrs["seed"] for trial in searched} & set(seeds)
        halves: list[int | None] = [1, 2] if name != "split" else [None]
        assert list(pairs) == [(seed, half) for seed in seeds for half in halves]
        of_losses.append(seeds)
        for trial in confirmed:
            for record in best_records(trial, objective_of(name)):
                assert record["batches"] >= 1, "also where a half fills no whole batch"
                half = trial.user_attrs.get("half")
                validating = split["halves"][half - 1] if half else split["validation"]
                assert list(record["classes"]) == ([] if name == "clusters" else validating)
    assert all(seeds == of_losses[0] for seeds in of_losses)


def test_confirmations_have_seeds_of_the_searchs_seed(runs: Path) -> None:
    seeds = {name: {trial.user_attrs["seed"] for trial in stored(runs, name, "pnp@confirm")} for name in VARIANTS}
    assert seeds["halves"] == seeds["clusters"] <= seeds["folds"]
    assert not seeds["halves"] & seeds["bound"]


def naive_choice(runs: Path, name: str, loss: str) -> tuple[int, dict[int, dict[str, float]], dict[int, list[float]]]:
    """Return the chosen number, and for each finalist its values by class and by seed."""
    better_by = 0.0 if name == "folds" else 1.0
    searched, confirmed = stored(runs, name, loss), stored(runs, name, f"{loss}@confirm")
    classes: dict[int, dict[str, list[float]]] = {}
    seeds: dict[int, dict[int, list[float]]] = {}
    for trial in confirmed:
        number = trial.user_attrs["source_trial"]
        of_seed = seeds.setdefault(number, {}).setdefault(trial.user_attrs["seed"], [])
        for record in best_records(trial, objective_of(name)):
            for class_name, value in record["classes"].items():
                classes.setdefault(number, {}).setdefault(class_name, []).append(value)
                of_seed.append(value)
        if name == "clusters":
            assert trial.value is not None
            of_seed.append(trial.value)
    means = {number: {key: sum(of) / len(of) for key, of in found.items()} for number, found in classes.items()}
    values = {number: [sum(of) / len(of) for of in found.values()] for number, found in seeds.items()}
    mean = {number: sum(of) / len(of) for number, of in values.items()}

    def value(number: int) -> float:
        same = [trial.value for trial in searched if trial.params == searched[number].params]
        return statistics.fmean(found for found in same if found is not None)

    allowed = []
    for number in sorted(set(values) - {0}):
        if means:
            differences = [means[number][key] - means[0][key] for key in means[0]]
            error = float(np.std(differences, ddof=1)) / len(differences) ** 0.5
            gain = sum(differences) / len(differences)
        else:
            error, gain = 0.0, mean[number] - mean[0]
        if value(number) > value(0) and gain > better_by * error:
            allowed.append(number)
    return max(allowed, key=lambda number: (mean[number], -number), default=0), means, values


@pytest.mark.parametrize(("name", "loss"), [(name, loss) for name in VARIANTS for loss in losses_of(name)])
def test_the_choice_follows_from_the_records(runs: Path, name: str, loss: str) -> None:
    selection = record_of(runs, name, "selection")
    number, classes, values = naive_choice(runs, name, loss)
    assert selection["chosen"][loss]["number"] == number
    for role, finalist in (("chosen", number), ("defaults", 0)):
        entry = selection[role][loss]
        assert entry["number"] == finalist
        assert entry["values"] == pytest.approx(values[finalist], abs=1e-12)
        assert entry["classes"] == pytest.approx(classes.get(finalist, {}), abs=1e-12)
        assert entry["failed"] == 0
    reason = selection["reasons"][loss]
    if name == "bound":
        reason, _, value = reason.rpartition("; its recall_at_1 is ")
        assert float(value) == pytest.approx(selection["chosen"][loss]["measured"]["recall_at_1"], rel=1e-3)
    assert reason.endswith("; it is chosen" if number else "; the default is kept")
    if number:
        gain = statistics.fmean(values[number]) - statistics.fmean(values[0])
        assert f"trial {number} is " in reason
        assert f"{100 * gain:.1f} " in reason
    assert summary(runs, name)["losses"][loss]["choice"] == selection["reasons"][loss]
    assert summary(runs, name)["split"]["halves"] == (name != "split")


@pytest.mark.parametrize("name", VARIANTS)
def test_the_recommendation_follows_from_the_records(runs: Path, name: str) -> None:
    """It is the loss with the highest mean, unless the features as they are or whitened are not clearly worse."""
    selection, found = record_of(runs, name, "selection"), summary(runs, name)["recommended"]
    assert found == selection["recommended"]
    mean = {loss: statistics.fmean(entry["values"]) for loss, entry in selection["chosen"].items()}
    best = max(mean, key=lambda loss: mean[loss])
    classes = record_of(runs, name, "baselines")["classes"]
    if not any(classes.values()):
        assert name == "clusters"
        assert (found["loss"], found["number"]) == (best, selection["chosen"][best]["number"])
        return
    own = selection["chosen"][best]["classes"]
    rival = max(classes, key=lambda network: statistics.fmean(classes[network].values()))
    assert set(classes[rival]) == set(own)
    differences = [own[key] - classes[rival][key] for key in own]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    if statistics.fmean(differences) >= -(0.0 if name == "folds" else error):
        assert (found["loss"], found["number"]) == (best, selection["chosen"][best]["number"])
    else:
        assert (found["loss"], found["number"]) == (rival, None)
        assert f"no training is better: {best}, the best one, is " in found["basis"]
    assert f"{100 * abs(statistics.fmean(differences)):.1f} ± {100 * error:.1f} points" in found["basis"]


def test_constraints_are_measured_on_both_halves(runs: Path) -> None:
    entry = record_of(runs, "bound", "selection")["chosen"]["pnp"]
    confirmed = stored(runs, "bound", "pnp@confirm")
    trials = [trial for trial in confirmed if trial.user_attrs["source_trial"] == entry["number"]]
    assert len(trials) == 2
    for metric in ("map_at_r", "recall_at_1"):
        best = [best_records(trial, "map_at_r")[0]["metrics"][metric] for trial in trials]
        assert entry["measured"][metric] == pytest.approx(statistics.fmean(best))


# Few and many classes.


def on_halves(tmp_path: Path, classes: int, selection: dict[str, str], **split: float) -> bool:
    dataset = {**GLYPHS["dataset"], "num_classes": classes}
    content = {**GLYPHS, "name": "other", "dataset": dataset, "split": split, "selection": selection}
    return make_plan(parse_config(content), tmp_path).on_halves


def test_too_few_classes_for_halves_is_a_sentence(tmp_path: Path) -> None:
    words = "selection.on is halves, and 6 training classes cannot be divided into halves of two classes or more"
    with pytest.raises(InvalidInput, match=words):
        on_halves(tmp_path, 12, {"on": "halves"}, ratio=0.6, merge=3)
    assert not on_halves(tmp_path, 12, {}, ratio=0.6, merge=3)


def test_many_validation_classes_confirm_themselves(tmp_path: Path) -> None:
    assert on_halves(tmp_path, 76, {}, ratio=0.5), "19 of 38 classes validate"
    assert not on_halves(tmp_path, 80, {}, ratio=0.5)
    assert on_halves(tmp_path, 80, {"on": "halves"}, ratio=0.5)
