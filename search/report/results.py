"""The result of a search and of a comparison, as typed, frozen objects with their JSON."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, ValidationError

from search.plan.runs import RunFolder
from search.stages import Role
from spaces.space import Value
from trainables.files import reading
from trainables.mistakes import Mistakes

# What all results have in common: they are frozen, and their JSON has the same names.


class Result(BaseModel):
    """A frozen result. ``model_dump(mode="json")`` is its JSON; an unknown name is an error when it is read or made."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# What a search's pruning was worth, by the pruned trials that were trained to their end.


class PruningAudit(Result):
    """Of ``pruned`` trials, which saved ``epochs_saved`` epochs, ``audited`` were trained to their end.

    ``wrongly`` of these came to at least ``bar``, the value of the last of the finalists: pruning cost them a place.
    ``ci95`` is the interval of their share among all pruned trials (Clopper and Pearson 1934), ``best`` the best value
    of an audited one.
    """

    pruned: int
    epochs_saved: int
    audited: int
    bar: float
    wrongly: int
    ci95: tuple[float, float]
    best: float

    @property
    def sentence(self) -> str:
        """In words."""
        low, high = self.ci95
        return (
            f"pruning saved {self.epochs_saved} epochs of {self.pruned} trials; of {self.audited} that were trained to "
            f"their end, {self.wrongly} came to the {self.bar:.4f} of the last finalist "
            f"(95 % interval of the share {low:.0%} to {high:.0%}), the best to {self.best:.4f}"
        )


# Anytime curves beside each other, at a few points.


class CurvePoint(Result):
    """The best ``value`` after ``epochs`` epochs, None before the first value.

    ``confirmed`` is the mean of what the best configurations so far were confirmed with, None unless all were.
    """

    epochs: int
    value: float | None
    confirmed: float | None


class ComparedCurve(Result):
    """The curve of ``loss``.

    It is compared with the first of several curves, whose label is ``against``; the first curve has None there.
    ``cost_ratio`` is the number of epochs to that curve's best value, as a multiple of what that curve needs; None
    where this curve does not reach the value, and where the difference may be chance.
    """

    loss: str
    points: tuple[CurvePoint, ...]
    against: str | None
    cost_ratio: float | None


class SearchCurve(ComparedCurve):
    """The curve of a loss in ``search``; None is the mean of all searches that have the loss."""

    search: str | None


# An improvement of a search.


class Incumbent(Result):
    """After ``epochs`` epochs of all trials, ``trial`` (its number) was the first to reach ``value``.

    ``confirmed`` is the mean that the trial's configuration was confirmed with, None where it was not confirmed.
    """

    epochs: int
    value: float
    trial: int
    confirmed: float | None


# What the noise stage came to.


class Detectable(Result):
    """The ``difference`` that the test of a pair finds with probability 80 %, among all ``pairs``; None with one seed.

    Each of the rows has ``seeds`` seeds, and the test classes' own noise comes on top.
    """

    seeds: int
    pairs: int
    difference: float | None


class NoiseSummary(Result):
    """How much the objective of one configuration (``loss``, ``params``) moves when it is trained again.

    ``values`` are those of several seeds on the search's own class split, with their ``mean`` and sample deviation
    ``std``. ``split_values`` are those of several class splits trained with the first seed, with ``split_std``.
    A deviation is None with one value. ``detectable`` is what the final seeds can show of such a noise.
    ``covers`` says in words what all of this covers.
    """

    loss: str
    params: Mapping[str, Value]
    mean: float
    values: tuple[float, ...]
    std: float | None
    split_values: tuple[float, ...]
    split_std: float | None
    detectable: Detectable
    covers: str


# ``test.json``: the scores of each opening of the test classes, as far as a report reads them.


class _Stored(BaseModel):
    """A part of the file, which the test stage writes; it holds more than a report reads."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ScoredModel(_Stored):
    """One trained model on the test classes.

    ``configuration`` is the trial that was trained again with ``seed``, on this ``fold`` where there are folds;
    ``per_image`` is the file of its per-image results. ``in_small_galleries`` is the objective among as many test
    classes as validate.
    """

    loss: str
    source_trial: int
    seed: int
    fold: int | None
    metrics: Mapping[str, float]
    in_small_galleries: float | None
    per_image: str


class ScoredOpening(_Stored):
    """One opening: its ``id`` in the ledger, when it was ``finished`` (seconds since 1970), and the models' scores."""

    id: str
    finished: float
    scores: tuple[ScoredModel, ...]


class _File(_Stored):
    openings: tuple[ScoredOpening, ...]


def scored_openings(path: Path) -> tuple[ScoredOpening, ...]:
    """The openings stored at ``path``, in order; none where the test classes are sealed."""
    if not path.exists():
        return ()
    with reading(path):
        return _File.model_validate_json(path.read_bytes()).openings


# A metric over training seeds, and what became of the seeds.


class SeedStatistics(Result):
    """A metric over ``seeds`` training seeds, in the metric's own unit (0 to 1 for all but distances).

    ``values`` has one number a trained model: where folds are trained, a seed has several. ``mean`` is their mean and
    ``std`` their sample deviation, None with one value.
    """

    mean: float
    std: float | None
    seeds: int
    values: tuple[float, ...]


class SeedInterval(SeedStatistics):
    """The same with ``ci95``, the ends of the mean's 95 % interval; None with one seed."""

    ci95: tuple[float, float] | None


class SeedOutcomes(Result):
    """What became of the seeds that a configuration was to be trained with in a stage.

    Of those ``wanted`` so many are ``complete``, in all their folds. ``failed`` counts by cause those of which a
    training failed (DIVERGED, OUT_OF_MEMORY, CODE_ERROR, LOST); the others are ``missing``: they wait, run, or were
    never begun.
    """

    wanted: int
    complete: int
    failed: Mapping[str, int]
    missing: int

    @classmethod
    def of(cls, trials: Sequence[FrozenTrial], wanted: int) -> "SeedOutcomes | None":
        """Those of a configuration's trainings in a stage; None where it has none."""
        if not trials:
            return None
        states: dict[int, list[FrozenTrial]] = {}
        for trial in trials:
            states.setdefault(trial.user_attrs["seed"], []).append(trial)
        causes = Counter(cause for of_seed in states.values() if (cause := _cause(of_seed)))
        complete = sum(all(trial.state == TrialState.COMPLETE for trial in of_seed) for of_seed in states.values())
        missing = max(wanted, len(states)) - complete - causes.total()
        return cls(wanted=max(wanted, len(states)), complete=complete, failed=dict(causes), missing=missing)

    @property
    def sentence(self) -> str | None:
        """In words; None where all are complete."""
        if self.complete == self.wanted:
            return None
        failed = [f"{count} failed ({cause})" for cause, count in self.failed.items()]
        missing = [f"{self.missing} missing"] if self.missing else []
        return f"{self.complete} of {self.wanted} seeds; {', '.join([*failed, *missing])}"


def _cause(trials: Sequence[FrozenTrial]) -> str | None:
    """Of what a seed's trainings failed; None where none did."""
    failed = [trial for trial in trials if trial.state == TrialState.FAIL]
    return failed[0].user_attrs.get("failure", {}).get("cause", "failed") if failed else None


# A remark about a study.


class Finding(Result):
    """``kind`` for programs, ``parameters`` it is about, and a ``sentence`` with the numbers behind it."""

    kind: str
    parameters: tuple[str, ...]
    sentence: str


# What a search came to for one loss.


class TrialCounts(Result):
    """How many trials of the search stage ended in each state."""

    complete: int
    pruned: int
    failed: int


class Confirmed(SeedStatistics):
    """The objective with fresh seeds.

    ``estimate`` is what other fresh seeds are expected to come to: the mean shrunk towards that of all finalists, since
    the best mean of several is luck in part. None before the choice.
    """

    estimate: float | None


class DefaultSummary(Result):
    """The papers' default, or the nearest allowed values where the space excludes it (``clipped``).

    ``value`` is its objective in the search, ``confirmed`` the objective with fresh seeds, ``final`` the objective of
    the trainings for the test, all on the validation classes; ``test`` maps each metric to its scores on the test
    classes, and ``test_small`` is the objective among as many of them as validate. ``confirmed_seeds`` and
    ``final_seeds`` tell seeds that failed from seeds that are missing. What has not been trained or scored is None.
    """

    params: Mapping[str, Value]
    value: float | None
    clipped: bool
    confirmed: Confirmed | None
    final: SeedStatistics | None
    test: Mapping[str, SeedInterval] | None
    test_small: SeedStatistics | None
    confirmed_seeds: SeedOutcomes | None = None
    final_seeds: SeedOutcomes | None = None


class BestTrial(Result):
    """The configuration with the highest objective in the search: its first trial, and the mean of its trials."""

    params: Mapping[str, Value]
    value: float
    number: int


class ChosenConfiguration(Confirmed):
    """The configuration that was chosen, and its objective with fresh seeds.

    ``number`` is its first trial, ``search_value`` its objective in the search.
    """

    params: Mapping[str, Value]
    number: int
    search_value: float | None


class SplitAgreement(Result):
    """On how many splits of the training classes the chosen configuration was confirmed beside others, and on how many
    of them it is the best.
    """

    splits: int
    best: int

    @property
    def sentence(self) -> str:
        """In words."""
        return (
            f"on {self.best} of {self.splits} splits of the training classes the chosen configuration is also the best "
            "of those confirmed there; confirmed values are without what a split adds to all of them"
        )


class LossSummary(Result):
    """What a search came to for one loss.

    ``epochs`` is how many epochs the search stage trained. ``ended_early`` says why there are fewer trials than asked
    for. ``best`` is the best trial of the search. ``confirmed`` is the chosen configuration, and ``other_splits`` says
    whether other validation classes would have chosen it, where it was confirmed on some; ``final``, ``test`` and
    ``test_small`` are its results, and ``confirmed_seeds`` and ``final_seeds`` say what became of its seeds, as in
    :class:`DefaultSummary`. ``audit`` says what pruning was worth. ``anytime`` lists the search's improvements in
    order, and ``diagnostics`` what the study says about itself. What is not there yet is None.
    """

    trials: TrialCounts
    epochs: int
    ended_early: str | None
    default: DefaultSummary
    best: BestTrial | None
    confirmed: ChosenConfiguration | None
    other_splits: SplitAgreement | None
    final: SeedStatistics | None
    test: Mapping[str, SeedInterval] | None
    test_small: SeedStatistics | None
    confirmed_seeds: SeedOutcomes | None = None
    final_seeds: SeedOutcomes | None = None
    audit: PruningAudit | None
    anytime: tuple[Incumbent, ...]
    diagnostics: tuple[Finding, ...]

    @property
    def overtuned(self) -> str | None:
        """A sentence where trainings that had no part in the choice are no better than the default's."""
        chosen, tuned, default = self.confirmed, self.final, self.default.final
        if chosen is None or chosen.number == 0 or tuned is None or default is None or tuned.mean > default.mean:
            return None
        return (
            f"overtuned? with the fresh seeds of the final trainings it comes to {tuned.mean:.4f}, its default to "
            f"{default.mean:.4f}"
        )

    @property
    def incomplete_seeds(self) -> list[str]:
        """A sentence for each stage in which seeds of a configuration failed or are missing."""
        entries: dict[str, DefaultSummary | LossSummary] = {"default": self.default}
        if self.confirmed and self.confirmed.number:
            entries = {"tuned": self, **entries}
        outcomes = [
            (f"{name} {stage}", found)
            for name, entry in entries.items()
            for stage, found in (("confirmed", entry.confirmed_seeds), ("final", entry.final_seeds))
        ]
        return [f"{name}: {found.sentence}" for name, found in outcomes if found and found.sentence]

    def of_role(self, role: Role) -> "DefaultSummary | LossSummary":
        """What has the ``confirmed``, ``final`` and ``test`` of the configuration with this role."""
        return self.default if role is Role.DEFAULT else self


# A row of the comparison: one configuration of one loss in one search.


class RowKey(NamedTuple):
    """What tells the rows of a comparison apart."""

    search: str
    loss: str
    role: Role


class Row(Result):
    """One configuration, from the search to the test classes.

    ``number`` is its trial and ``params`` its hyperparameters; both are None where no trial finished. The other
    fields are those of :class:`~search.report.results.DefaultSummary`, ``search_value`` its ``value``.
    """

    search: str
    loss: str
    role: Role
    number: int | None
    params: Mapping[str, Value] | None
    search_value: float | None
    confirmed: Confirmed | None
    final: SeedStatistics | None
    test: Mapping[str, SeedInterval] | None
    test_small: SeedStatistics | None

    @property
    def key(self) -> RowKey:
        """What the row is called."""
        return RowKey(search=self.search, loss=self.loss, role=self.role)


# Two rows of a comparison, and whether they differ.


class Pair(Result):
    """The difference of two rows on the test classes, the first minus the second.

    ``difference`` and its 95 % interval ``ci95`` are in the unit of ``metric``; each row has at least ``seeds`` seeds.
    ``p`` is against other test classes and other seeds, ``p_holm`` corrected for the number of pairs, and the rows
    ``differ`` where it is at most 5 %.
    """

    first: RowKey
    second: RowKey
    metric: str
    seeds: int
    difference: float
    ci95: tuple[float, float]
    p: float
    p_holm: float
    differ: bool


# ``summary.json``: what a search came to so far.

FORMAT: Final = 2
"""Changes with every change of the file's keys or of their meaning."""


FEW_CLASSES: Final = 10
"""With fewer validation classes the choice may be mostly luck.

Among five finalists it keeps less than half of what the best of them would gain over one at random, where a
configuration is better or worse on one class by three deviations of quality or more; by two, with fewer than five
classes (``make bench-statistics``, ``classes``).
"""


class SplitSummary(Result):
    """The class split: its digest, and how many classes train, validate and test; ``gallery`` validate at once, among
    each other or, with ``training_half``, among half of the training images too.

    ``folds`` is how many folds a cross-validation has, None where one part of the classes validates. ``merge`` is how
    many consecutive classes are learned as one.
    """

    digest: str
    train_classes: int
    validation_classes: int
    gallery: int
    training_half: bool
    test_classes: int
    folds: int | None
    merge: int

    @property
    def luck(self) -> str | None:
        """A sentence where so few classes validate that it may be mostly luck which of the finalists is chosen."""
        classes = self.train_classes if self.folds else self.validation_classes
        if classes >= FEW_CLASSES:
            return None
        return (
            f"only {classes} classes validate, so the choice may be mostly luck; split.folds or a "
            "smaller split.ratio validates on more"
        )


class TimeSummary(Result):
    """Where the time went, in seconds.

    ``wall_s`` is the time of all sessions, ``startup_s`` what passed of it before a first epoch, ``search_wall_s`` the
    time from the search's first epoch to its last one's end. ``trial_work_s`` sums what the search trials spent
    training and validating, of which ``slots`` ran at once.
    """

    wall_s: float
    startup_s: float
    search_wall_s: float
    trial_work_s: float
    slots: int


class Summary(Result):
    """What the search ``name`` came to so far.

    ``objective`` is the validation metric that was maximised, ``noise`` None before the noise stage, ``test_opened``
    how often the test classes were opened for this search, ``losses`` what came of each loss.
    """

    format: Literal[2] = FORMAT
    name: str
    split: SplitSummary
    objective: str
    noise: NoiseSummary | None
    test_opened: int
    losses: Mapping[str, LossSummary]
    time: TimeSummary

    @classmethod
    def load(cls, path: Path) -> "Summary":
        """The summary stored at ``path``.

        Raises:
            Mistakes: another version wrote it, or it is damaged.
        """
        text = path.read_bytes()
        again = "`holdout run` with the search's file writes it again from the search's records"
        try:
            content: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Mistakes(f"{path} is damaged ({error}); {again}.") from error
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise Mistakes(
                f"{path} was written by another version: its format is {json.dumps(found)} and this version reads "
                f"{FORMAT}; {again}."
            )
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise Mistakes(f"{path} is damaged ({key}: {first['msg']}); {again}.") from error


def stored_summary(folder: RunFolder) -> Summary:
    """The summary as it was written last.

    Raises:
        Mistakes: there is none yet, another version wrote it, or it is damaged.
    """
    if not folder.summary.exists():
        raise Mistakes(
            f"The search {folder.name} has no result yet; `holdout status {folder.name}` says how far it is."
        )
    return Summary.load(folder.summary)


# The losses of several searches of one split beside each other.


class Comparison(Result):
    """Everything that a comparison says.

    All ``searches`` have the same ``objective`` and ``split``. ``openings`` says how often the test classes were
    opened, and ``warnings`` what was trained on images of an opened test set, or chosen after opening.
    ``test_metrics`` are the metrics of the test that are shown; there are none while the test is sealed. ``left_out``
    says in sentences which rows could not be paired, and why.
    """

    objective: str
    split: SplitSummary
    openings: str
    warnings: tuple[str, ...]
    test_metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]
    anytime: tuple[SearchCurve, ...]
    searches: tuple[Summary, ...]
