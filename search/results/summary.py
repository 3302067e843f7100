"""The results of one search, as stored in ``summary.json``."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, field_validator

from search.difference import FEW_CLASSES, Recommendation
from search.results.rows import Named, Result, Row, SeedStatistics, Shown, frame_of
from search.stages import UNTRAINED, WHITENED, Role
from spaces.space import Value
from trainables.common.errors import InvalidInput
from trainables.common.files import json_digest, reading
from trainables.metrics import metric_name

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


class Incumbent(Result):
    """An improvement of a search: after ``epochs`` epochs of all trials, trial ``trial`` reached ``value`` first."""

    epochs: int
    value: float
    trial: int


class Finding(Result):
    """A remark about a study: a ``kind`` for programs, its ``parameters``, and a ``sentence`` with the numbers."""

    kind: str
    parameters: tuple[str, ...]
    sentence: str


class LossSummary(Result):
    """The results of a search for one loss. Results that do not exist yet are None.

    Attributes:
        epochs: number of epochs of the search stage.
        ended_early: reason why there are fewer trials than requested.
        tuned: the chosen configuration; before the choice, the best of the search.
        choice: the reason of the choice, in words.
        anytime: the search's improvements in order.
        diagnostics: findings about the study.
    """

    trials: TrialCounts
    epochs: int
    ended_early: str | None
    default: Row
    tuned: Row
    best: BestTrial | None
    choice: str | None
    anytime: tuple[Incumbent, ...]
    diagnostics: tuple[Finding, ...]

    @property
    def test(self) -> Mapping[str, SeedStatistics | None] | None:
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
            "overtuned? with the fresh seeds of the final trainings its mean on the validation classes is not above "
            "that of the default"
        )

    @property
    def remarks(self) -> list[str]:
        """Remarks about the search, its study and its seeds."""
        found = (self.ended_early, self.overtuned, *(finding.sentence for finding in self.diagnostics))
        return [*self.incomplete_seeds, *filter(None, found)]

    @property
    def incomplete_seeds(self) -> list[str]:
        """A sentence for each stage in which seeds of a configuration failed or are missing."""
        return [
            f"{row.role} {stage}: {outcomes.sentence}"
            for row in ([self.tuned, self.default] if self.tuned.number else [self.default])
            for stage, outcomes in (("confirmed", row.confirmed_seeds), ("final", row.final_seeds))
            if outcomes and outcomes.sentence
        ]


FORMAT: Final = 10
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

    format: Literal[10] = FORMAT
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
        is_chosen = any(entry.chosen for entry in self.losses.values())
        for name, baseline in self.baselines.items():
            value = baseline.validation[metric_name(self.objective)]
            confirmed = value if baseline.confirmed is None else baseline.confirmed
            yield Row(
                search=self.name,
                loss=name,
                role=Role.BASELINE,
                number=None,
                search_value=value,
                confirmed=SeedStatistics.fixed(confirmed) if is_chosen and confirmed is not None else None,
                test=baseline.test,
            )
        for entry in self.losses.values():
            yield from (entry.default, entry.tuned)

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        found = {UNTRAINED: self.untrained, WHITENED: self.whitened}
        return {name: baseline for name, baseline in found.items() if baseline}

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
            summary = cls.model_validate_json(json.dumps(content))
        return summary.model_copy(update={"is_changed": is_changed})
