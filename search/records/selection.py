"""The choice: finalists confirmed with fresh seeds, the rule that chooses one, and the frozen selection."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial, TrialState
from pydantic import ConfigDict, TypeAdapter

from search.difference import Basis, Difference, Family, Recommendation, best_baseline
from search.goal import Goal
from search.stages import Role
from search.trials import best_epochs, classes_of, epochs_of, params_of, values_of
from spaces.space import Params, Value
from trainables.common.errors import InvalidInput, counted
from trainables.common.files import json_digest, reading, write_json
from trainables.metrics import score_text

# Confirmations of a search's finalists with fresh seeds.


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The confirmation of one configuration, identified by the ``number`` of its trial in the search.

    Attributes:
        searched: the values of its trials in the search.
        values: the objective of each fresh seed that finished: the mean over ``classes``, on halves over the classes
            of both; if it has no values by class, that of the training, or the mean of both halves.
        classes: the objective of each class that validated, the mean over the fresh seeds; empty if it has none.
        best_epochs: the best epoch of each finished training, or of each of its folds.
        failed: the number of fresh seeds with a failed training.
        measured: the means over the fresh seeds of the constraints' metrics and the objective; empty without any.
    """

    number: int
    params: Mapping[str, Value]
    searched: tuple[float, ...]
    values: tuple[float, ...]
    classes: Mapping[str, float]
    best_epochs: tuple[int, ...]
    failed: int
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def median_best_epoch(self) -> int | None:
        """The median, rounded up, of the best epochs: how long to train without validation."""
        return math.ceil(statistics.median(self.best_epochs)) if self.best_epochs else None


def finalists(trials: Sequence[FrozenTrial], count: int, goal: Goal | None = None) -> list[FrozenTrial]:
    """Return the first complete trials of the ``count`` best configurations, and trial 0 if it is not among them.

    They are ranked by the mean value of their trials, with constraints by :meth:`search.goal.Goal.ranked`.
    """
    groups: dict[Params, list[FrozenTrial]] = {}
    for trial in trials:
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED):
            groups.setdefault(params_of(trial), []).append(trial)
    valued = [group for group in groups.values() if values_of(group)]
    best_first = sorted(valued, key=lambda group: -statistics.fmean(values_of(group)))
    whole = [[trial for trial in group if trial.state == TrialState.COMPLETE] for group in best_first]
    if goal and goal.constraints:
        whole = [whole[place] for place in goal.ranked([goal.mean(group) for group in whole])]
    best = [group[0] for group in whole][:count]
    if best and trials[0].params not in [trial.params for trial in best]:
        best.append(trials[0])
    return best


def confirmations(
    searched: Sequence[FrozenTrial],
    confirmed: Sequence[FrozenTrial],
    candidates: Sequence[int],
    objective: str,
    goal: Goal | None = None,
) -> dict[int, Confirmation]:
    """Return the confirmations of the trials ``candidates`` of a search, with what its ``goal`` measures, if any."""
    result = {}
    for number in candidates:
        by_seed: dict[int, list[FrozenTrial]] = {}  # on halves, each seed trains two models
        for trial in confirmed:
            if trial.user_attrs["source_trial"] == number:
                by_seed.setdefault(trial.user_attrs["seed"], []).append(trial)
        whole = [runs for runs in by_seed.values() if all(trial.state == TrialState.COMPLETE for trial in runs)]
        good = [trial for runs in whole for trial in runs]
        of_seeds = [{name: value for trial in runs for name, value in classes_of(trial).items()} for runs in whole]
        result[number] = Confirmation(
            number=number,
            params=dict(searched[number].params),
            searched=values_of([trial for trial in searched if trial.params == searched[number].params]),
            values=tuple(
                statistics.fmean(classes.values() or [trial.value for trial in runs if trial.value is not None])
                for runs, classes in zip(whole, of_seeds, strict=True)
            ),
            classes={
                name: statistics.fmean(classes[name] for classes in of_seeds) for name in next(iter(of_seeds), ())
            },
            best_epochs=tuple(epoch for trial in good for epoch in best_epochs(epochs_of(trial), objective)),
            failed=sum(any(trial.state == TrialState.FAIL for trial in runs) for runs in by_seed.values()),
            measured=goal.mean(good) if goal and goal.constraints else {},
        )
    return result


# The rule.
#
# Few validation classes mislead: a difference between two configurations varies by 5 to 7 points from class to class
# and by about one from seed to seed, and few unseen classes favour high learning rates, which keep these apart from
# the classes that were learned but let many unseen classes fall on each other. So the finalists are compared on all
# training classes, and the default is kept unless a finalist is better than it on the fixed split and beyond the noise
# between classes in the confirmation (``python -m benchmarks choice``).


def rule_in_words(basis: Basis, goal: Goal) -> str:
    """Return the sentence about the rule in ``selection.json``."""
    errors = "1 standard error" if basis.better_by == 1 else f"{basis.better_by:g} standard errors"
    text = (
        "finalists: the configurations of highest value (the mean of their trials), and trial 0 (the papers' default), "
        f"trained with fresh seeds and compared {basis.confirmation}; the default is kept unless a finalist is better "
        f"in the search and by more than {errors} over classes in the confirmation; chosen of those: the one with the "
        "highest mean; ties go to the lower trial number"
    )
    return f"{text}; {goal.rule}" if goal.rule else text


def choose(
    candidates: Mapping[int, Confirmation], default: Mapping[str, Value], basis: Basis, goal: Goal | None = None
) -> tuple[Confirmation, str] | None:
    """Return the chosen one of the confirmed ``candidates``, and the reason.

    The result is None if no seed finished, or no candidate meets the constraints. ``default`` are the default's params.
    """
    tried = [candidate for candidate in candidates.values() if candidate.values]
    allowed = [candidate for candidate in tried if not (goal and goal.unmet(candidate.measured))]
    if not allowed:
        return None
    best, reason = _better_than_default(allowed, default, basis)
    if goal and goal.constraints:
        found = (f"its {entry.metric} is {best.measured[entry.metric]:.4g}" for entry in goal.constraints)
        reason += f"; {' and '.join(dict.fromkeys(found))}"
    if len(allowed) < len(tried):
        reason += f"; {len(tried) - len(allowed)} of {counted(len(tried), 'finalist')} do not meet the constraints"
    return best, reason


def _better_than_default(
    allowed: Sequence[Confirmation], params: Mapping[str, Value], basis: Basis
) -> tuple[Confirmation, str]:
    by_mean = sorted(allowed, key=lambda candidate: (candidate.failed, -candidate.mean, candidate.number))
    default = next((candidate for candidate in allowed if candidate.params == params), None)
    if default is None:
        best = by_mean[0]
        return best, (
            f"trial {best.number} has the highest mean {basis.confirmation}, {score_text(basis.objective, best.mean)}; "
            "the default has none or does not meet the constraints"
        )
    others = [candidate for candidate in by_mean if candidate is not default]
    better = [
        candidate
        for candidate in others
        if _in_search(candidate) > _in_search(default) and _difference(candidate, default).is_above(basis.better_by)
    ]
    if better:
        return better[0], f"{_compared(better[0], default, basis)}; it is chosen"
    leading = max(others, key=_in_search, default=None)
    if leading is None or _in_search(leading) <= _in_search(default):
        return default, f"no trial is above the default {basis.validation}; the default is kept"
    return default, f"{_compared(leading, default, basis)}; the default is kept"


def _difference(first: Confirmation, second: Confirmation) -> Difference:
    """Return the difference of two configurations, paired by class if the objective has values by class."""
    paired = Difference.by_class(first.classes, second.classes)
    return paired or Difference(mean=first.mean - second.mean, error=None)


def _in_search(candidate: Confirmation) -> float:
    return statistics.fmean(candidate.searched) if candidate.searched else -math.inf


def _compared(candidate: Confirmation, default: Confirmation, basis: Basis) -> str:
    confirmed = _difference(candidate, default)
    if not default.searched:
        return f"trial {candidate.number} is {confirmed.side(basis.objective)} {basis.confirmation}"
    searched = Difference(mean=_in_search(candidate) - _in_search(default), error=None)
    joint = "and" if (searched.mean > 0) == confirmed.is_above(basis.better_by) else "but"
    return (
        f"trial {candidate.number} is {searched.side(basis.objective)} the default {basis.validation}, {joint} "
        f"{confirmed.side(basis.objective)} it {basis.confirmation}"
    )


def unmet_sentence(loss: str, candidates: Sequence[Confirmation], goal: Goal) -> str | None:
    """Return a sentence if no confirmed configuration of ``loss`` meets the constraints; None otherwise."""
    tried = [candidate for candidate in candidates if candidate.values]
    if not tried or any(not goal.unmet(candidate.measured) for candidate in tried):
        return None
    closest = tried[goal.ranked([candidate.measured for candidate in tried])[0]]
    lacks = " and ".join(
        f"{constraint.metric} is {closest.measured[constraint.metric]:.4g}, which must be {constraint.relation} "
        f"{constraint.bound:g}"
        for constraint in goal.unmet(closest.measured)
    )
    return f"No confirmed configuration of {loss} meets search.constraints; of trial {closest.number}, {lacks}."


def recommend(
    chosen: Mapping[str, Confirmation], untrained: Mapping[str, Mapping[str, float]], basis: Basis
) -> Recommendation:
    """Return the loss with the highest confirmed mean, or a network without training that is better than it.

    The network must be better by as much as a finalist than the default, because a loss is confirmed by models of some
    of the training classes, which is no disadvantage for the network. Requiring the loss to be better instead has two
    to four times the regret (``python -m benchmarks choice``). ``untrained`` has, for each network without training,
    the objective of each class that validated in the confirmation; it is empty if nothing was pretrained.
    """
    loss = min(chosen, key=lambda name: (chosen[name].failed, -chosen[name].mean))
    best = chosen[loss]
    rival = best_baseline(untrained)
    difference = Difference.by_class(best.classes, untrained.get(rival, {}))
    if difference is None:
        return Recommendation(loss=loss, number=best.number, basis=f"chosen {basis.confirmation}")
    side = difference.side(basis.objective)
    if replace(difference, mean=-difference.mean).is_above(basis.better_by):
        text = f"no training is better: {loss}, the best one, is {side} it {basis.confirmation}"
        return Recommendation(loss=rival, number=None, basis=text)
    text = f"{side} the {rival} network {basis.confirmation}"
    if not difference.is_above(basis.better_by):
        text += ", which is within the error"
    return Recommendation(loss=loss, number=best.number, basis=text)


# The exported model of a loss, determined before the test is opened.

EXPORTED = (
    "of the models that are trained for the test with the chosen configuration, the first seed's, of the first fold "
    "where there are folds; where that training fails, the next one's"
)
"""Not the model with the best score: its expected score is the mean over all seeds."""


def exported_trial(finals: Sequence[FrozenTrial], chosen: Confirmation) -> FrozenTrial | None:
    """Return the trial among the ``finals`` of a loss whose model is exported; None if no model is trained."""
    trained = (trial for trial in finals if trial.state == TrialState.COMPLETE)
    return next((trial for trial in trained if trial.user_attrs["source_trial"] == chosen.number), None)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The frozen choice of a search, which the test stage requires.

    ``id`` distinguishes it from an equal selection of another search. ``recommended`` is the one model of the search,
    chosen on its training classes. ``test_metrics`` are computed in the test, ``family`` is the table of the test, and
    ``exported`` describes the exported model of a loss. ``trained_on_opened`` is the warning of a search that trains on
    images of an opened test set, and ``baselines`` the digest of the scores of the networks without training.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str
    search: str
    objective: str
    test_metrics: tuple[str, ...]
    family: Family
    split_digest: str
    test_digest: str
    studies: Mapping[str, str]
    rule: str
    exported: str
    chosen: Mapping[str, Confirmation]
    defaults: Mapping[str, Confirmation]
    reasons: Mapping[str, str]
    recommended: Recommendation
    trained_on_opened: str | None
    baselines: str | None

    @cached_property
    def digest(self) -> str:
        return json_digest(asdict(self))

    def save(self, path: Path) -> None:
        write_json(path, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the selection and its digest, for ``selection.json``."""
        return {**asdict(self), "digest": self.digest}

    def configurations(self, loss: str) -> list[Confirmation]:
        """Return the configurations of ``loss`` that are tested: the chosen one, and the default if it differs."""
        entries = (self.chosen[loss], self.defaults[loss])
        return list({entry.number: entry for entry in entries}.values())

    @property
    def models(self) -> tuple[str, ...]:
        """The models that are written: that of each loss, and a network without training if it is recommended."""
        return tuple(dict.fromkeys((*self.chosen, self.recommended.loss)))

    def role(self, loss: str, entry: Confirmation) -> Role:
        """Return the role of ``entry``; the chosen configuration is TUNED even if it is the default."""
        return Role.TUNED if entry.number == self.chosen[loss].number else Role.DEFAULT

    @classmethod
    def load(cls, path: Path) -> "Selection":
        """Read the selection at ``path``.

        Raises:
            InvalidInput: it does not exist, was written by another version or was changed.
        """
        if not path.is_file():
            raise InvalidInput(f"Nothing is selected yet: {path} does not exist; `holdout select` makes it.")
        with reading(path, "restore it, use that version, or search under a new name"):
            content = json.loads(path.read_bytes())
            digest = content.pop("digest")
            selection = TypeAdapter(cls).validate_python(content)
        if not digest == json_digest(content) == selection.digest:
            raise InvalidInput(
                f"{path} was changed after it was frozen (its digest does not match); "
                "restore it, or search under a new name."
            )
        return selection


def study_digest(trials: Sequence[FrozenTrial]) -> str:
    """Return the SHA-256 of a study: everything in its trials, except their start and end times."""
    content = []
    for trial in trials:
        ranges = {name: distribution_to_json(entry) for name, entry in trial.distributions.items()}
        facts = [trial.number, trial.state.name, trial.values, trial.params, ranges]
        content.append([*facts, trial.intermediate_values, trial.user_attrs, trial.system_attrs])
    return json_digest(content)
