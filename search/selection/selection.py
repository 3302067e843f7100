"""Choosing one configuration a loss by its confirmations, and freezing the choice before the test can be opened."""

import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial, TrialState

from search.study.configurations import by_configuration, configuration_of, mean_of, mean_value
from search.study.records import epochs_of
from search.study.trial_value import best_epochs
from spaces.value import Value
from trainables.files import write_json
from trainables.mistakes import Mistakes

RULE = (
    "finalists: the configurations of highest value (the mean of their complete trials), then those of the pruned "
    "trials that got furthest, and trial 0 (the papers' default); "
    "chosen: the one with the highest mean over its confirmation seeds among those with the fewest failed seeds; "
    "ties go to the lower trial number"
)


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """One configuration's confirmations: ``values`` of the seeds that finished, ``failed`` the number that did not.

    ``best_epochs`` are the epochs at which the finished seeds were best, each fold of a seed by itself.
    """

    number: int
    params: Mapping[str, Value]
    search_value: float | None
    values: tuple[float, ...]
    best_epochs: tuple[int, ...]
    failed: int

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.values)

    @property
    def median_best_epoch(self) -> int | None:
        """How long to train where nothing validates: the median, rounded up, of the seeds' best epochs."""
        return math.ceil(statistics.median(self.best_epochs)) if self.best_epochs else None

    @property
    def rank(self) -> tuple[int, float, int]:
        """The rule as a sort key: lowest first."""
        return (self.failed, -self.mean if self.values else float("inf"), self.number)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What was chosen, frozen: the only thing that the test stage takes."""

    search: str
    objective: str
    split_digest: str
    test_digest: str
    studies: Mapping[str, str]
    rule: str
    chosen: Mapping[str, Confirmation]
    defaults: Mapping[str, Confirmation]
    reasons: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the whole selection."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Freeze the selection at ``path``."""
        write_json(path, {**asdict(self), "digest": self.digest})

    @classmethod
    def load(cls, path: Path) -> "Selection":
        """The selection frozen at ``path``.

        Raises:
            Mistakes: there is none, or it was changed since.
        """
        if not path.is_file():
            raise Mistakes(f"Nothing is selected yet: {path} does not exist; `holdout select` makes it.")
        content = json.loads(path.read_text())
        digest = content.pop("digest")
        for role in ("chosen", "defaults"):
            content[role] = {loss: _confirmation(entry) for loss, entry in content[role].items()}
        selection = cls(**content)
        if selection.digest != digest:
            raise Mistakes(
                f"{path} was changed after it was frozen (its digest does not fit); "
                "restore it, or search under a new name."
            )
        return selection


def _confirmation(entry: dict[str, Any]) -> Confirmation:
    return Confirmation(**{**entry, "values": tuple(entry["values"]), "best_epochs": tuple(entry["best_epochs"])})


def finalists(trials: Sequence[FrozenTrial], count: int) -> list[FrozenTrial]:
    """The first trials of the ``count`` best configurations, and trial 0 where its own is not among them.

    Configurations with complete trials come first, by the mean of these. Where they are fewer than ``count``, those
    of the pruned trials that got furthest follow: a confirmation trains them to the end, and pruning may have been
    wrong. Without any of them there is nothing to confirm, not even the default.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    pruned = sorted((trial for trial in trials if trial.state == TrialState.PRUNED), key=_worst_last)
    best_first = sorted(by_configuration(complete), key=lambda group: -(mean_of(group) or 0.0))
    ranked = [group[0] for group in best_first]
    best = [group[0] for group in by_configuration([*ranked, *pruned])][:count]
    if best and configuration_of(trials[0]) not in [configuration_of(trial) for trial in best]:
        best.append(trials[0])
    return best


def _worst_last(trial: FrozenTrial) -> tuple[int, float, int]:
    return (-max(trial.intermediate_values, default=0), -(trial.value or 0.0), trial.number)


def confirmations(
    searched: Sequence[FrozenTrial], confirmed: Sequence[FrozenTrial], candidates: Sequence[int], objective: str
) -> dict[int, Confirmation]:
    """The confirmations of the trials ``candidates`` of a search."""
    result = {}
    for number in candidates:
        runs = [trial for trial in confirmed if trial.user_attrs["configuration"] == number]
        good = [trial for trial in runs if trial.state == TrialState.COMPLETE]
        result[number] = Confirmation(
            number=number,
            params=dict(configuration_of(searched[number])),
            search_value=mean_value(searched, configuration_of(searched[number])),
            values=tuple(trial.value for trial in good if trial.value is not None),
            best_epochs=tuple(epoch for trial in good for epoch in best_epochs(epochs_of(trial), objective)),
            failed=len(runs) - len(good),
        )
    return result


def choose(candidates: Mapping[int, Confirmation]) -> tuple[Confirmation, str] | None:
    """The chosen configuration and why; None where no seed of any finished."""
    ranked = sorted(candidates.values(), key=lambda candidate: candidate.rank)
    if not ranked or not ranked[0].values:
        return None
    best = ranked[0]
    reason = f"trial {best.number} has the highest confirmed mean, {best.mean:.4f} over {len(best.values)} seeds"
    if len(ranked) > 1 and ranked[1].values:
        reason += f"; next is trial {ranked[1].number} with {ranked[1].mean:.4f}"
    return best, reason


def study_digest(trials: Sequence[FrozenTrial]) -> str:
    """SHA-256 of what a study says: all of every trial, its epochs too, but for the times of its row."""
    content = [
        [
            trial.number,
            trial.state.name,
            trial.values,
            trial.params,
            {name: distribution_to_json(entry) for name, entry in trial.distributions.items()},
            trial.intermediate_values,
            trial.user_attrs,
            trial.system_attrs,
        ]
        for trial in trials
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
