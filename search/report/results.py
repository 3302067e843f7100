"""The results of searches: ``summary.json``, and the comparison of several."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, field_validator

from search.difference import FEW_CLASSES, Recommendation, RowKey
from search.report.loss_results import Incumbent as Incumbent, LossSummary as LossSummary, rows_from_stored
from search.report.rows import Named, Result, Row, SeedStatistics, Shown, frame_of
from search.stages import UNTRAINED, WHITENED, Role
from trainables.errors import InvalidInput
from trainables.files import json_digest, reading
from trainables.metrics.table import metric_name

if TYPE_CHECKING:
    import pandas


class SplitSummary(Result):
    """The class split.

    Attributes:
        training_half: True if half of the training images are in the validation gallery too.
        folds: number of folds of a cross-validation; None without one.
        halves: True if choices are confirmed on two halves of the training classes.
        merge: number of consecutive classes that are learned as one.
        label_noise: the part of the training images that is learned under a wrong class.
        marks: "groups", "parts" and "cameras", those that the data set has.
    """

    digest: str
    train_classes: int
    validation_classes: int
    training_half: bool
    test_classes: int
    folds: int | None
    halves: bool
    merge: int
    label_noise: float
    marks: tuple[str, ...] = ()

    @property
    def luck(self) -> str | None:
        """A warning if the choice among the finalists may be mostly luck, because few classes validate."""
        classes = self.train_classes if self.folds else self.validation_classes
        if self.halves or classes >= FEW_CLASSES:
            return None
        return (
            f"only {classes} classes validate, so the choice may be mostly luck; selection.on: halves confirms it on "
            "all training classes"
        )


class Baseline(Result):
    """A network without training.

    Attributes:
        validation: each metric on the validation classes; with folds, the mean over folds.
        confirmed: mean of the objective over the classes of the confirmation; None if it has no values by class.
        test: each metric on the test classes; None while they are sealed.
    """

    validation: Mapping[str, float | None]
    confirmed: float | None = None
    test: Mapping[str, SeedStatistics | None] | None = None


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

FORMAT: Final = 9
"""Changes whenever the keys of the file or their meaning change."""


class OlderSummary(InvalidInput):
    """Error of a summary that an older version wrote; its search can still be summarised from its records."""


class Summary(Shown, Result):
    """The results of a search so far.

    Attributes:
        objective: the validation metric that is maximised.
        recommended: the model that the search recommends; None before the choice.
        test_opened: number of times the test classes were opened for this search.
        test_overlap: number of test images that are training or validation images, too; None before the test.
        untrained: result of the initial network's pooled features; None if nothing was pretrained.
        whitened: result of these features after whitening; None if nothing was pretrained.
        is_changed: True if its file was changed after it was written; not in the file.
    """

    format: Literal[9] = FORMAT
    name: str
    split: SplitSummary
    objective: str
    recommended: Recommendation | None
    test_opened: int
    test_overlap: int | None
    untrained: Baseline | None = None
    whitened: Baseline | None = None
    losses: Mapping[str, LossSummary]
    time: TimeSummary
    is_changed: bool = Field(default=False, exclude=True)

    def with_digest(self) -> dict[str, Any]:
        """Return the content of ``summary.json``: the results and the SHA-256 of them."""
        content = self.model_dump(mode="json")
        return {**content, "digest": json_digest(content)}

    @field_validator("losses")
    @classmethod
    def _named(cls, losses: Mapping[str, LossSummary]) -> Mapping[str, LossSummary]:
        return Named(losses)

    def to_frame(self) -> "pandas.DataFrame":
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
        found = {UNTRAINED: self.untrained, WHITENED: self.whitened}
        return {name: baseline for name, baseline in found.items() if baseline}

    def _baseline_row(self, name: str, baseline: Baseline) -> Row:
        value = baseline.validation[metric_name(self.objective)]
        confirmed = value if baseline.confirmed is None else baseline.confirmed
        is_chosen = any(entry.chosen for entry in self.losses.values())
        return Row(
            search=self.name,
            loss=name,
            role=Role.BASELINE,
            number=None,
            search_value=value,
            confirmed=SeedStatistics.fixed(confirmed) if is_chosen and confirmed is not None else None,
            test=baseline.test,
        )

    @classmethod
    def load(cls, path: Path) -> "Summary":
        """Return the summary stored at ``path``.

        Raises:
            OlderSummary: an older version wrote it.
            InvalidInput: a newer version wrote it, or it is damaged.
        """
        with reading(path, "`holdout run` with the search's file writes it again from the search's records"):
            content: Any = json.loads(path.read_bytes())
            if content["format"] < FORMAT:
                raise OlderSummary(f"{path} was written by an older version of Holdout.")
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r} and this version reads {FORMAT}")
            digest = content.pop("digest")
            is_changed = digest != json_digest(content)
            rows_from_stored(content)
            summary = cls.model_validate_json(json.dumps(content))
        return summary.model_copy(update={"is_changed": is_changed})


# The comparison of the losses of several searches.


class Pair(Result):
    """The difference of two rows on the test classes, the first minus the second.

    Attributes:
        metric: the metric; ``difference`` and ``ci95`` are in its unit.
        seeds: smaller number of seeds of the two rows; a baseline has none.
        ci95: its 95 % interval, which holds for all pairs of the table at once; without 0 if they ``differ``.
        p: two-sided p-value of the pair alone, against other test classes and other seeds.
        p_corrected: ``p`` times the number of pairs (Bonferroni), at most 1.
        differ: True if ``p_corrected`` is at most 5 %.
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
    within: float | None = None
    same: bool = False


class Answer(Result):
    """The answer of a search that has chosen, in four lines that are the same in every output.

    Attributes:
        recommended: the recommended model with its hyperparameters, and what the recommendation rests on.
        better_than_default: whether its test value is above that of its loss's default, with the interval.
        better_than_untrained: the same for the untrained network.
    """

    search: str
    recommended: str
    better_than_default: str
    better_than_untrained: str
    next: str

    @property
    def lines(self) -> tuple[str, ...]:
        return self.recommended, self.better_than_default, self.better_than_untrained, self.next

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__


class Comparison(Shown, Result):
    """The comparison of the losses of several searches.

    Attributes:
        changed: sentences on records that were changed or removed, which come first in every output.
        answers: the answer of each search that has chosen.
        openings: a sentence on the openings of the test classes.
        earlier_openings: the number of openings of these classes before that of the choice, by tested search.
        warnings: sentences on training with images of an opened test set, on rows that are not trained alike, and on
            choices after the opening.
        test_metrics: the metrics of the test that are shown; none while the test is sealed.
        rows: the baselines of each search, and the default and the tuned row of each of its losses.
        left_out: sentences on rows that could not be paired.
    """

    changed: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    objective: str
    split: SplitSummary
    openings: str
    earlier_openings: Mapping[str, int] = {}
    warnings: tuple[str, ...]
    test_metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]
    searches: tuple[Summary, ...]

    def to_frame(self) -> "pandas.DataFrame":
        return frame_of(self.rows)
