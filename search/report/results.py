"""Results of a search and of a comparison: frozen objects with their JSON."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
)

from search.plan.runs import RunFolder, refuse_renamed
from search.report.rows import Result, Row, RowKey, SeedStatistics
from search.report.shown import Named, Shown, frame_of
from search.stages import UNTRAINED, WHITENED, Role
from spaces.space import Value
from trainables.data.units import CLASS, NOUNS
from trainables.files import reading
from trainables.metrics.table import metric_name
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    import pandas

# Parts of a summary.


class TrialCounts(Result):
    """Numbers of trials of the search stage by their final state."""

    complete: int
    pruned: int
    failed: int

    def __str__(self) -> str:
        return f"{self.complete} complete, {self.pruned} pruned, {self.failed} failed"


class BestTrial(Result):
    """The leading trial: the complete trial of a search with the highest objective, the first of equal ones."""

    params: Mapping[str, Value]
    value: float
    number: int


class PruningAudit(Result):
    """The cost of pruning, measured by training ``audited`` of the ``pruned`` trials to the end.

    Attributes:
        pruned: number of pruned trials.
        epochs_saved: number of epochs that pruning saved.
        audited: number of pruned trials that were trained to the end.
        bar: value of the last finalist.
        wrongly: number of audited trials that reached ``bar``, and so lost their place among the finalists.
        ci95: 95 % interval of the share of such trials among all pruned ones (Clopper and Pearson 1934).
        best: best value of an audited trial.
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
        """The audit in a sentence."""
        low, high = self.ci95
        return (
            f"pruning saved {self.epochs_saved} epochs of {self.pruned} trials; of {self.audited} trained to the end, "
            f"{self.wrongly} reached the last finalist's {self.bar:.4f} (95 % interval of the share {low:.0%} to "
            f"{high:.0%}), the best {self.best:.4f}"
        )


class SplitAgreement(Result):
    """Agreement of other splits of the training classes with the choice.

    Of ``splits`` splits on which the chosen configuration and others were confirmed, it is the best on ``best``.
    """

    splits: int
    best: int

    @property
    def sentence(self) -> str:
        """The agreement in a sentence."""
        return (
            f"on {self.best} of {self.splits} splits of the training classes the chosen configuration is also the best "
            "of those confirmed there; confirmed values exclude what a split adds to all of them"
        )


class Incumbent(Result):
    """An improvement of a search: after ``epochs`` epochs of all trials, trial ``trial`` reached ``value`` first.

    ``confirmed`` is the confirmed mean of the trial's configuration; None if it was not confirmed.
    """

    epochs: int
    value: float
    trial: int
    confirmed: float | None


class FrontTrial(Result):
    """A configuration on the Pareto front, or the chosen one, of a search with constraints or several objectives.

    Attributes:
        trial: the number of its first complete trial.
        searched: the metrics of objectives and constraints in the search, means of its complete trials.
        confirmed: their means over fresh seeds; None if it was not confirmed.
        chosen: True for the chosen configuration, which other seeds may have put behind the front.
    """

    trial: int
    searched: Mapping[str, float]
    confirmed: Mapping[str, float] | None
    chosen: bool


class Finding(Result):
    """A remark about a study: a ``kind`` for programs, its ``parameters``, and a ``sentence`` with the numbers."""

    kind: str
    parameters: tuple[str, ...]
    sentence: str


class LossSummary(Result):
    """The results of a search for one loss. Results that do not exist yet are None.

    Attributes:
        trials: counts of the search's trials.
        epochs: number of epochs of the search stage.
        ended_early: reason why there are fewer trials than requested.
        default: the default configuration.
        tuned: the chosen configuration; before the choice, the best of the search.
        best: the best trial of the search.
        other_splits: agreement of other splits with the choice, if it was confirmed on some.
        audit: the cost of pruning.
        anytime: the search's improvements in order.
        front: the Pareto front of the complete trials that meet the constraints, and the chosen configuration; empty if
            one metric decides alone.
        diagnostics: findings about the study.
    """

    trials: TrialCounts
    epochs: int
    ended_early: str | None
    default: Row
    tuned: Row
    best: BestTrial | None
    other_splits: SplitAgreement | None
    audit: PruningAudit | None
    anytime: tuple[Incumbent, ...]
    front: tuple[FrontTrial, ...]
    diagnostics: tuple[Finding, ...]

    @model_serializer(mode="wrap")
    def _as_stored(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the form of ``summary.json``; :func:`_rows_from_stored` is the inverse.

        The tuned row's values are keys of the loss, and those of the default row are below ``default``.
        """
        found = handler(self)
        default, tuned = (
            {**found.pop(row.role), "confirmed_seeds": row.confirmed_seeds, "final_seeds": row.final_seeds}
            for row in (self.default, self.tuned)
        )
        named = {name: default.pop(name) for name in _NAMES}
        configured = {name: tuned.pop(name) for name in _NAMES}
        confirmed = tuned.pop("confirmed")
        return {
            **{name: found.pop(name) for name in ("trials", "epochs", "ended_early")},
            "default": {
                "params": named["params"],
                "value": named["search_value"],
                "clipped": self.default.clipped,
                **default,
            },
            "best": found.pop("best"),
            "confirmed": confirmed and {**confirmed, **{name: configured[name] for name in _OF_CHOICE}},
            "other_splits": found.pop("other_splits"),
            **tuned,
            **found,
        }

    @property
    def test(self) -> Mapping[str, SeedStatistics] | None:
        """Each metric of the tuned configuration on the test classes."""
        return None if self.tuned.test is None else Named(self.tuned.test)

    @property
    def chosen(self) -> Row | None:
        """The tuned row once it is chosen; None before."""
        return self.tuned if self.tuned.confirmed else None

    @property
    def overtuned(self) -> str | None:
        """A sentence if fresh trainings of the chosen configuration are no better than those of the default."""
        tuned, default = self.tuned.final, self.default.final
        if not self.tuned.number or tuned is None or default is None or tuned.mean > default.mean:
            return None
        return (
            f"overtuned? with the fresh seeds of the final trainings its mean is {tuned.mean:.4f}, the default's "
            f"{default.mean:.4f}"
        )

    @property
    def incomplete_seeds(self) -> list[str]:
        """A sentence for each stage in which seeds of a configuration failed or are missing."""
        return [
            f"{row.role} {stage}: {outcomes.sentence}"
            for row in ([self.tuned, self.default] if self.tuned.number else [self.default])
            for stage, outcomes in (("confirmed", row.confirmed_seeds), ("final", row.final_seeds))
            if outcomes and outcomes.sentence
        ]


_OF_CHOICE = ("params", "number", "search_value")
_NAMES = ("search", "loss", "role", *_OF_CHOICE)


def _rows_from_stored(content: dict[str, Any]) -> None:
    """Replace the values of each configuration in the ``content`` of ``summary.json`` with its row, in-place.

    Raises:
        KeyError, TypeError, AttributeError: the content is damaged.
    """
    for loss, entry in content["losses"].items():
        name = {"search": content["name"], "loss": loss}
        default, best, confirmed = entry["default"], entry["best"], entry.pop("confirmed")
        configured: dict[str, Any] = dict.fromkeys(_OF_CHOICE)
        if confirmed:
            configured = {key: confirmed.pop(key) for key in _OF_CHOICE}
        elif best:
            configured = {"params": best["params"], "number": best["number"], "search_value": best["value"]}
        entry["tuned"] = {
            **name, "role": Role.TUNED, **configured,
            "clipped": default["clipped"] and configured["number"] == 0,
            "confirmed": confirmed,
            **{key: entry.pop(key) for key in list(entry) if key in Row.model_fields},
        }  # fmt: skip
        entry["default"] = {
            **name, "role": Role.DEFAULT, "number": 0, "search_value": default.pop("value"), **default,
        }  # fmt: skip


class Detectable(Result):
    """The smallest difference that the final seeds can show.

    Attributes:
        seeds: number of seeds of each row.
        pairs: number of pairs that are tested.
        difference: difference of a pair that the test finds with probability 80 %, on top of which comes the noise of
            the test classes; None with one final seed, or with too few seeds of the noise.
        ci95: its 95 % interval, from the number of seeds of the noise.
    """

    seeds: int
    pairs: int
    difference: float | None
    ci95: tuple[float, float] | None = None


class NoiseSummary(Result):
    """The noise of the objective when one configuration is trained again.

    Attributes:
        loss: the loss that was trained.
        params: its hyperparameters.
        mean: mean of ``values``.
        values: values of several seeds on the search's own class split.
        std: sample deviation of ``values``; None with one value.
        split_values: values on several class splits, trained with the first seed.
        split_std: sample deviation of ``split_values``; None with one value.
        detectable: for each metric of the table that was measured, the objective first, the smallest difference that
            the final seeds can show with its own noise.
        covers: a sentence on the sources of noise that are included.
    """

    loss: str
    params: Mapping[str, Value]
    mean: float
    values: tuple[float, ...]
    std: float | None
    split_values: tuple[float, ...]
    split_std: float | None
    detectable: Mapping[str, Detectable]
    covers: str


FEW_CLASSES: Final = 10
"""With fewer validation classes the choice may be mostly luck.

Among five finalists it keeps less than half of what the best of them would gain over a random one, if a configuration
is better or worse on one class by three deviations of quality or more; by two, with fewer than five classes
(``make bench-statistics``, ``classes``).
"""


class SplitSummary(Result):
    """The class split.

    Attributes:
        digest: digest of the split.
        train_classes: number of training classes.
        validation_classes: number of validation classes.
        gallery: number of classes in a validation gallery.
        training_half: True if half of the training images are in the gallery too.
        test_classes: number of test classes.
        folds: number of folds of a cross-validation; None without one.
        merge: number of consecutive classes that are learned as one.
        label_noise: the part of the training images that is learned under a wrong class.
        marks: "groups", "parts", "cameras" and "targets", those that the data set has.
        by: what is divided, and here called classes: "class", "group" or "time".
    """

    digest: str
    train_classes: int
    validation_classes: int
    gallery: int
    training_half: bool
    test_classes: int
    folds: int | None
    merge: int
    label_noise: float
    marks: tuple[str, ...] = ()
    by: str = CLASS

    @property
    def noun(self) -> str:
        """The word for several of the units that are divided."""
        return NOUNS[self.by][1]

    @property
    def luck(self) -> str | None:
        """A warning if the choice among the finalists may be mostly luck, because few classes validate."""
        classes = self.train_classes if self.folds else self.validation_classes
        if classes >= FEW_CLASSES:
            return None
        return (
            f"only {classes} {self.noun} validate, so the choice may be mostly luck; split.folds or a "
            "smaller split.ratio validates on more"
        )


class Baseline(Result):
    """A network without training.

    Attributes:
        validation: each metric on the validation classes; with folds, the mean over folds.
        test: each metric on the test classes; None while they are sealed.
        test_small: objective on test galleries with as many classes as a validation gallery.
    """

    validation: Mapping[str, float]
    test: Mapping[str, SeedStatistics] | None = None
    test_small: SeedStatistics | None = None


class TimeSummary(Result):
    """Durations in seconds.

    Attributes:
        wall_s: all sessions.
        startup_s: the part of ``wall_s`` before the first epoch of a session.
        search_wall_s: from the start of the search's first epoch to the end of its last one.
        trial_work_s: sum of the search trials' training and validation.
        slots: number of trials that run in parallel.
    """

    wall_s: float
    startup_s: float
    search_wall_s: float
    trial_work_s: float
    slots: int


# The summary of a search: ``summary.json``.

FORMAT: Final = 6
"""Changes whenever the keys of the file or their meaning change."""


class Summary(Shown):
    """The results of a search so far.

    Attributes:
        name: name of the search.
        split: its class split.
        objective: the validation metric that is maximised.
        noise: result of the noise stage; None before it.
        test_opened: number of times the test classes were opened for this search.
        test_overlap: number of test images that are training or validation images, too; None before the test.
        untrained: result of the initial network's pooled features; None if nothing was pretrained.
        whitened: result of these features after whitening; None if nothing was pretrained.
        losses: results by loss.
        time: durations.
    """

    format: Literal[6] = FORMAT
    name: str
    split: SplitSummary
    objective: str
    noise: NoiseSummary | None
    test_opened: int
    test_overlap: int | None
    untrained: Baseline | None = None
    whitened: Baseline | None = None
    losses: Mapping[str, LossSummary]
    time: TimeSummary

    @field_validator("losses")
    @classmethod
    def _named(cls, losses: Mapping[str, LossSummary]) -> Mapping[str, LossSummary]:
        return Named(losses)

    def to_frame(self) -> "pandas.DataFrame":
        """Return a table with one line per baseline and configuration."""
        return frame_of(self.rows)

    @property
    def rows(self) -> Iterator[Row]:
        """The rows of the baselines, if there are any, then the default and the tuned row of each loss."""
        for name, baseline in self.baselines.items():
            yield self._baseline_row(name, baseline)
        for entry in self.losses.values():
            yield from (entry.default, entry.tuned)

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """The networks without training by name."""
        found = {UNTRAINED: self.untrained, WHITENED: self.whitened}
        return {name: baseline for name, baseline in found.items() if baseline}

    def _baseline_row(self, name: str, baseline: Baseline) -> Row:
        value = baseline.validation[metric_name(self.objective)]
        is_chosen = any(entry.chosen for entry in self.losses.values())
        return Row(
            search=self.name,
            loss=name,
            role=Role.BASELINE,
            number=None,
            search_value=value,
            confirmed=SeedStatistics.fixed(value) if is_chosen else None,
            test=baseline.test,
            test_small=baseline.test_small,
        )

    @classmethod
    def load(cls, path: Path) -> "Summary":
        """Return the summary stored at ``path``.

        Raises:
            Mistakes: another version wrote it, or it is damaged.
        """
        again = "`holdout run` with the search's file writes it again from the search's records"
        try:
            content: Any = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise Mistakes(f"{path} is damaged ({error}); {again}.") from error
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise Mistakes(
                f"{path} was written by another version: its format is {json.dumps(found)} and this version reads "
                f"{FORMAT}; {again}."
            )
        if not isinstance(content.get("losses"), dict):
            raise Mistakes(f"{path} is damaged (losses: must be an object; it is {content.get('losses')!r}); {again}.")
        try:
            _rows_from_stored(content)
        except (KeyError, TypeError, AttributeError) as error:
            raise Mistakes(f"{path} is damaged ({type(error).__name__}: {error}); {again}.") from error
        try:
            return cls.model_validate_json(json.dumps(content))
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise Mistakes(f"{path} is damaged ({key}: {first['msg']}); {again}.") from error


def stored_summary(folder: RunFolder) -> Summary:
    """Return the summary as it was written last.

    Raises:
        Mistakes: there is none yet, another version wrote it, or it is damaged.
    """
    if not folder.summary.exists():
        raise Mistakes(
            f"The search {folder.name} has no result yet; `holdout status {folder.name}` shows its progress."
        )
    summary = Summary.load(folder.summary)
    refuse_renamed(folder, summary.name)
    return summary


# The comparison of the losses of several searches.


class Pair(Result):
    """The difference of two rows on the test classes, the first minus the second.

    Attributes:
        first: name of a row.
        second: name of another row.
        metric: the metric; ``difference`` and ``ci95`` are in its unit.
        seeds: smaller number of seeds of the two rows; a baseline has none.
        difference: difference of the means.
        ci95: its 95 % interval, which holds for all pairs of the table at once; without 0 if they ``differ``.
        p: two-sided p-value of the pair alone, against other test classes and other seeds.
        p_corrected: ``p`` times the number of pairs (Bonferroni), at most 1.
        differ: True if ``p_corrected`` is at most 5 %.
        of_classes: False if the metric is a single number, so that ``ci95`` and ``p`` are of other seeds alone.
        within: the margin of equivalence, in the unit of the metric; None without one.
        same: True if ``ci95`` lies between -``within`` and ``within``: two one-sided tests, corrected for all pairs.
            Rows may be the same within a margin and ``differ`` nevertheless.
    """

    first: RowKey
    second: RowKey
    metric: str
    seeds: int
    difference: float
    ci95: tuple[float, float]
    p: float
    p_corrected: float
    differ: bool
    of_classes: bool = True
    within: float | None = None
    same: bool = False


class CurvePoint(Result):
    """The best ``value`` after ``epochs`` epochs; None before the first value.

    ``confirmed`` is the mean confirmed value of the best configurations so far; None unless all were confirmed.
    """

    epochs: int
    value: float | None
    confirmed: float | None


class ComparedCurve(Result):
    """The anytime curve of ``loss`` at a few points, compared with the first of several curves.

    Attributes:
        loss: name of the loss.
        points: the curve's points.
        against: label of the first curve; None for the first curve itself.
        cost_ratio: epochs that the curve needs to reach the first curve's best value, as a multiple of the epochs that
            the first curve needs. None if the curve never reaches it, and if the difference is not significant.
    """

    loss: str
    points: tuple[CurvePoint, ...]
    against: str | None
    cost_ratio: float | None


class SearchCurve(ComparedCurve):
    """The curve of a loss in ``search``; None for the mean of all searches that have the loss."""

    search: str | None


class Comparison(Shown):
    """The comparison of the losses of several searches.

    Attributes:
        objective: the objective of all searches.
        split: the class split of all searches.
        openings: a sentence on the openings of the test classes.
        warnings: sentences on training with images of an opened test set, on rows that are not trained alike, and on
            choices after the opening.
        test_metrics: the metrics of the test that are shown; none while the test is sealed.
        rows: the baselines of each search, and the default and the tuned row of each of its losses.
        pairs: the differences of rows.
        left_out: sentences on rows that could not be paired.
        anytime: the anytime curves.
        searches: the summaries of the searches.
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

    def to_frame(self) -> "pandas.DataFrame":
        """Return a table with one line per baseline and configuration."""
        return frame_of(self.rows)


# ``test.json``, which the test stage writes: the scores of each opening of the test classes.


class _Stored(BaseModel):
    """A part of the file; keys that a report does not need are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ScoredModel(_Stored):
    """One trained model on the test classes.

    Attributes:
        loss: name of the loss.
        source_trial: trial of the search whose configuration was trained.
        seed: seed of the training.
        fold: fold of the training; None without folds.
        metrics: value of each metric.
        in_small_galleries: objective on test galleries with as many classes as a validation gallery.
        per_image: name of the file with the per-image results.
        per_item: the metrics that have a value per item, of a training that scores its items itself; None for others.
    """

    loss: str
    source_trial: int
    seed: int
    fold: int | None
    metrics: Mapping[str, float]
    in_small_galleries: float | None
    per_image: str
    per_item: tuple[str, ...] | None = None


class ScoredBaseline(_Stored):
    """A network without training on the test classes; the attributes are those of a :class:`ScoredModel`."""

    name: str
    metrics: Mapping[str, float]
    in_small_galleries: float | None
    per_image: str


class ScoredOpening(_Stored):
    """One opening: its ``id`` in the ledger, when it ``finished`` (seconds since 1970), and the models' scores.

    ``overlap`` is the number of test images that are images of the training half, too.
    """

    id: str
    finished: float
    overlap: int
    scores: tuple[ScoredModel, ...]
    baselines: tuple[ScoredBaseline, ...] = ()


class _TestFile(_Stored):
    openings: tuple[ScoredOpening, ...]


def scored_openings(path: Path) -> tuple[ScoredOpening, ...]:
    """Return the openings stored at ``path``, in order; none while the test classes are sealed."""
    if not path.exists():
        return ()
    with reading(path):
        return _TestFile.model_validate_json(path.read_bytes()).openings
