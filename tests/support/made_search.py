"""The records of a finished search, written by hand, as far as a comparison reads them."""

import hashlib
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from support.summaries import SPLIT as SPLIT_SUMMARY, made_loss, made_row, made_summary

from search.difference import Family, Recommendation, RowKey
from search.records.ledger_file import LedgerFile
from search.records.records import Records
from search.records.runs import RunFolder
from search.records.score_files import ScoredOpening
from search.records.selection import Selection
from search.results.comparison import Comparison, compare
from search.results.statistics import over_seeds
from search.results.summary import BestTrial, Finding, Incumbent, TrialCounts
from search.stages import Role
from trainables.common.files import write_json
from trainables.data.split import ClassSplit

SPLIT = ClassSplit(
    train=("a", "b", "c"),
    validation=("d", "e"),
    test=tuple(f"t{number}" for number in range(30)),
    ratio=0.9,
    seed=0,
    identity="made",
)
LABELS = np.repeat(np.arange(30), 4)
SEEDS = (11, 12, 13)
Means = dict[str, tuple[float, float]]
"""The mean test score of each loss: default, tuned."""


def made_search(
    runs: Path,
    name: str,
    means: Means,
    *,
    seeds: tuple[int, ...] = SEEDS,
    folds: int = 1,
    tested: bool = True,
    idle_seeds: bool = False,
) -> None:
    """The records of a finished search, as far as a comparison reads them; each seed has a model a fold.

    With ``idle_seeds``, trainings ignore their seed.
    """
    folder = RunFolder(runs, name)
    generator = np.random.default_rng(0)
    per_class = generator.normal(0, 0.1, 30)
    results = folder.path / "test" / f"first-{name}"
    shared = [seed for seed in seeds for _ in range(folds)]
    losses, scores = {}, []
    for loss, (default, tuned) in means.items():
        by_number: dict[int, dict[str, Any]] = {}
        for number, mean in ((0, default), (7, tuned)):
            values = []
            noise = generator.normal(0, 0.02, (folds, len(LABELS)))
            for seed, fold in itertools.product(seeds, range(folds)):
                noise[fold] = noise[fold] if idle_seeds else generator.normal(0, 0.02, len(LABELS))
                scores_N = mean + per_class[LABELS] + noise[fold]
                path = results / f"{loss}-{number}-{seed}{f'-{fold}' if fold else ''}.npz"
                path.parent.mkdir(parents=True, exist_ok=True)
                keys = np.array([f"{index}.png" for index in range(len(LABELS))])
                np.savez_compressed(path, labels=LABELS, keys=keys, map_at_r=scores_N, recall_at_1=scores_N)
                model = {"loss": loss, "source_trial": number, "seed": seed, "per_image": path.name, "model_sha256": ""}
                scores.append({"fold": None, **model, "metrics": {}})
                values.append(float(scores_N.mean()))
            entry = over_seeds(values, shared)
            test = dict.fromkeys(("map_at_r", "recall_at_1"), entry) if tested else None
            plain = entry.model_copy(update={"ci95": None})
            by_number[number] = {"number": number, "confirmed": plain, "final": plain, "test": test}
        losses[loss] = made_loss(
            trials=TrialCounts(complete=5, pruned=2, failed=1),
            epochs=12,
            default=made_row(Role.DEFAULT, params={"x": 1}, search_value=default, **by_number[0]),
            tuned=made_row(Role.TUNED, params={"x": 2}, search_value=tuned, **by_number[7]),
            best=BestTrial(params={"x": 2}, value=tuned, number=7),
            anytime=(Incumbent(epochs=3, value=default, trial=0), Incumbent(epochs=9, value=tuned, trial=7)),
            diagnostics=(Finding(kind="edge", parameters=("x",), sentence="the best x lies at the high end"),),
        )
    summary = made_summary(
        losses,
        name,
        split=SPLIT_SUMMARY.model_copy(update={"digest": SPLIT.digest}),
        test_opened=int(tested),
        recommended=recommendation(next(iter(means))),
    )
    content = {"name": name, "model": {}, "training": {}, "losses": list(means), "checkpoints": {"storage_path": None}}
    write_json(folder.config, content)
    write_json(folder.split, SPLIT.to_json())
    write_json(folder.summary, summary.with_digest())
    if not tested:
        shutil.rmtree(folder.path / "test")
    else:
        opening = {
            "id": results.name,
            "test_digest": SPLIT.test_digest,
            "search": name,
            "selections": {name: name},
            "configurations": {name: 2 * len(means)},
            "studies": {},
            "time": "2026-01-01T00:00:00Z",
            "reason": "the search's own test stage",
        }
        ledger = LedgerFile(folder.openings)
        with ledger.locked():
            ledger.append([opening], lambda name: None)
        frozen_selection(name, list(means)).save(folder.selection)
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in results.iterdir()}
        record = {**opening, "finished": 0.0, "overlap": 0, "copies": 0, "scores": scores, "files": files}
        digest = ScoredOpening.model_validate_json(json.dumps({**record, "digest": ""})).digest_of_content()
        write_json(folder.test, {"openings": [{**record, "digest": digest}]})


def recommendation(loss: str) -> Recommendation:
    return Recommendation(loss=loss, number=7, basis="chosen on the 2 validation classes with fresh seeds")


def frozen_selection(name: str, losses: list[str]) -> Selection:
    """What was frozen: trial 7 of each loss, and the table of the search by itself."""
    rows = {loss: (RowKey(name, loss, Role.DEFAULT), RowKey(name, loss, Role.TUNED)) for loss in losses}
    pairs = [*rows.values(), *itertools.combinations((tuned for _, tuned in rows.values()), 2)]
    return Selection(
        id=name,
        search=name,
        objective="map_at_r",
        test_metrics=("map_at_r", "recall_at_1"),
        family=Family.of(("map_at_r", "recall_at_1"), itertools.chain.from_iterable(rows.values()), pairs, None),
        split_digest=SPLIT.digest,
        test_digest=SPLIT.test_digest,
        studies={},
        rule="",
        exported="",
        chosen={},
        defaults={},
        reasons={},
        recommended=recommendation(losses[0]),
        trained_on_opened=None,
        baselines=None,
    )


def compared(runs: Path, *names: str) -> Comparison:
    return compare([Records(RunFolder(runs, name)) for name in names])
