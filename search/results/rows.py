"""A row of the result table (one configuration of a loss in one search), the table's columns, and numbers as text.

A column is one entry of :data:`COLUMNS`. The terminal tables, CSV, Markdown, LaTeX and MLflow all read it from there.
"""

import statistics
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict

from search.difference import RowKey
from search.stages import Role
from spaces.space import Value, value_text
from trainables.common.errors import suggestion
from trainables.metrics import is_bounded, score_text, unit

if TYPE_CHECKING:
    import pandas


class Result(BaseModel):
    """Base class of frozen results. ``model_dump(mode="json")`` is the JSON; unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Shown(ABC):
    """A result that is shown as a table at Python's prompt and in notebooks."""

    MOST_LINES = 15
    """Rows at the prompt; beyond it the middle is left out."""

    @abstractmethod
    def to_frame(self) -> "pandas.DataFrame":
        """Return the numbers as a table of pandas."""

    def __repr__(self) -> str:
        frame = self.to_frame()
        text = frame.to_string(index=False, max_rows=self.MOST_LINES, max_cols=10, float_format="{:.4f}".format)
        return f"<{type(self).__name__}>\n{text}"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        frame = self.to_frame()  # its HTML escapes what a user named
        return str(frame.to_html(index=False, na_rep="–", float_format="{:.4f}".format, max_rows=60))


T = TypeVar("T")


class Named(dict[str, T]):
    """A dictionary whose error for an unknown name lists the known names."""

    def __missing__(self, name: Any) -> T:
        raise KeyError(f"there is no {name!r}{suggestion(str(name), self)}; known: {', '.join(self) or 'none'}")


# Values over training seeds.


class SeedStatistics(Result):
    """A metric over ``seeds`` training seeds, in the metric's own unit (0 to 1 for all but distances).

    Attributes:
        std: sample deviation of ``values``; None with one value.
        seeds: number of seeds; 0 for a network without training, which has one value.
        values: one number per trained model; a seed has several if folds are trained.
        ci95: 95 % interval of the mean, for test scores; None with one seed, and if all seeds have the same value.
    """

    mean: float
    std: float | None
    seeds: int
    values: tuple[float, ...]
    ci95: tuple[float, float] | None = None

    @classmethod
    def over(
        cls, values: Sequence[float], seeds: Sequence[int] | None = None, ci95: tuple[float, float] | None = None
    ) -> "SeedStatistics":
        """Return the statistics of ``values``, one per seed unless ``seeds`` has the seed of each value."""
        assert values, "no values"
        return cls(
            mean=statistics.fmean(values),
            std=statistics.stdev(values) if len(values) > 1 else None,
            seeds=len(values if seeds is None else set(seeds)),
            values=tuple(values),
            ci95=ci95,
        )

    @classmethod
    def fixed(cls, value: float) -> "SeedStatistics":
        """Return the one value of a network without training."""
        return cls(mean=value, std=None, seeds=0, values=(value,))


class SeedOutcomes(Result):
    """Outcomes of the seeds that a configuration is trained with in a stage.

    Attributes:
        wanted: number of seeds to train.
        complete: number of seeds that finished, in all folds.
        failed: number of seeds with a failed training, by cause (DIVERGED, OUT_OF_MEMORY, CODE_ERROR, LOST).
        missing: number of seeds that wait, run or never started.
    """

    wanted: int
    complete: int
    failed: Mapping[str, int]
    missing: int

    @classmethod
    def of(cls, trials: Sequence[FrozenTrial], wanted: int) -> "SeedOutcomes | None":
        """Count the outcomes of a configuration's trainings in a stage; None without trainings."""
        if not trials:
            return None
        by_seed: dict[int, list[FrozenTrial]] = {}
        for trial in trials:
            by_seed.setdefault(trial.user_attrs["seed"], []).append(trial)
        causes: Counter[str] = Counter()
        for of_seed in by_seed.values():
            if failed := [trial for trial in of_seed if trial.state == TrialState.FAIL]:
                causes[failed[0].user_attrs.get("failure", {}).get("cause", "failed")] += 1
        complete = sum(all(trial.state == TrialState.COMPLETE for trial in of_seed) for of_seed in by_seed.values())
        wanted = max(wanted, len(by_seed))
        return cls(wanted=wanted, complete=complete, failed=dict(causes), missing=wanted - complete - causes.total())

    @property
    def sentence(self) -> str | None:
        """A sentence on failed and missing seeds; None if all are complete."""
        if self.complete == self.wanted:
            return None
        failed = [f"{count} failed ({cause})" for cause, count in self.failed.items()]
        missing = [f"{self.missing} missing"] if self.missing else []
        return f"{self.complete} of {self.wanted} seed{'s' * (self.wanted != 1)}; {', '.join([*failed, *missing])}"


class Row(Result):
    """One configuration of a loss, default or tuned, from the search to the test classes, or a baseline.

    The default is the papers' (the nearest allowed values if the space excludes them). The tuned configuration is the
    chosen one; before the choice, the best of the search. A value that is not measured yet is None. A baseline is a
    network without training: it has the same value in the search and with fresh seeds, and no interval over seeds.

    Attributes:
        loss: name of the loss, or of the baseline (``BASELINES``).
        number: number of the trial of the search that has the configuration; None if no trial finished.
        params: hyperparameters; None if no trial finished.
        search_value: objective of that trial in the search; None unless it is complete.
        confirmed: objective on the validation classes with fresh seeds; a tuned row has it once it is chosen.
        final: objective of the trainings for the test, on the validation classes.
        test: each metric on the test classes; None if it is undefined in all of its models.
        distinct_proxies: mean number of distinct proxies of a class in the models for the test, for a loss with several
            (:func:`trainables.losses.loss.distinct_proxies`).
        clipped: True for a default that the space excludes.
        confirmed_seeds: outcomes of the seeds of the confirmation.
        final_seeds: outcomes of the seeds of the trainings for the test.
    """

    search: str
    loss: str
    role: Role
    number: int | None
    params: Mapping[str, Value] | None = None
    search_value: float | None = None
    confirmed: SeedStatistics | None = None
    final: SeedStatistics | None = None
    test: Mapping[str, SeedStatistics | None] | None = None
    distinct_proxies: SeedStatistics | None = None
    clipped: bool = False
    confirmed_seeds: SeedOutcomes | None = None
    final_seeds: SeedOutcomes | None = None

    @property
    def key(self) -> RowKey:
        return RowKey(search=self.search, loss=self.loss, role=self.role)

    @property
    def ignores_seeds(self) -> bool:
        """True if all values on the test are the same with several seeds."""
        found = [entry for entry in (self.test or {}).values() if entry]
        return bool(found) and all(entry.seeds > 1 and entry.ci95 is None for entry in found)

    @property
    def name(self) -> str:
        """The number of the trial and the role, as tables show it."""
        if self.role is Role.BASELINE:
            return "no training"
        if self.number is None:
            return "none finished"
        clipped = " clipped" * self.clipped
        if self.role is Role.DEFAULT:
            return f"0, default{clipped}"
        best = "is best" if self.confirmed else "leads so far"
        return f"default{clipped} {best}" if self.number == 0 else f"{self.number}, tuned"


def frame_of(rows: Iterable[Row]) -> "pandas.DataFrame":
    """Return one line per row: its name, and its objective at each stage, the means of seeds; metrics on the test.

    A default that was chosen is one line.
    """
    import pandas

    return pandas.DataFrame(
        [
            {
                "search": row.search,
                "loss": row.loss,
                "role": row.role.value,
                "trial": row.number,
                "search_value": row.search_value,
                "confirmed": row.confirmed and row.confirmed.mean,
                "final": row.final and row.final.mean,
                **{f"test_{metric}": found and found.mean for metric, found in (row.test or {}).items()},
            }
            for row in rows
            if row.role is not Role.TUNED or row.number != 0
        ]
    ).astype({"trial": "Int64"})


Entry = float | SeedStatistics | None
"""A row's entry in a column; None if there is none yet."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the result table.

    Attributes:
        key: the CSV's ``stage``, the group of the metrics in MLflow, and with spaces the words in the header.
        metrics: the metrics that have such a column: the objective, all shown metrics of the test, or none; in the last
            case the table leaves the column out if it has no entry.
        in_mlflow: the runs in MLflow have the column too, as metrics.
    """

    key: str
    entry: Callable[[Row, str], Entry]
    metrics: Literal["objective", "test", "none"] = "objective"
    in_mlflow: bool = True

    def metric_names(self, objective: str, test_metrics: Sequence[str]) -> Sequence[str]:
        """Return the metrics that have such a column; one empty name if it is not about a metric."""
        return {"objective": (objective,), "test": test_metrics, "none": ("",)}[self.metrics]


COLUMNS = (
    Column(key="search", entry=lambda row, _: row.search_value),
    Column(key="confirmed", entry=lambda row, _: row.confirmed),
    Column(key="final", entry=lambda row, _: row.final, in_mlflow=False),
    Column(key="distinct_proxies", entry=lambda row, _: row.distinct_proxies, metrics="none"),
    Column(key="test", entry=lambda row, metric: (row.test or {}).get(metric), metrics="test"),
)
"""The columns of the result table, in their order."""


def mean_of(entry: Entry) -> float | None:
    """Return the number of an entry: a mean over seeds, or the number itself."""
    return entry.mean if isinstance(entry, SeedStatistics) else entry


# Numbers and hyperparameters as text.

MOST_DIGITS = 6


def parameters(params: Mapping[str, Value]) -> str:
    """Return hyperparameters in one line."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in params.items())


def sentence(text: str) -> str:
    """Return a phrase with a full stop, and an initial capital unless it begins with a name and a colon."""
    first = text[0] if text.split(" ")[0].endswith(":") else text[0].upper()
    return f"{first}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def spread_text(metric: str, mean: float | None, std: float | None) -> str:
    """Return mean ± sample deviation, without a deviation of 0 or None."""
    return score_text(metric, mean) + (f" ± {score_text(metric, std)}" if std else "")


def interval(ends: tuple[float, float] | None, *, scale: float = 1.0, digits: int = 4) -> str:
    """Return an interval, if there is one, in units of 1 / ``scale``; an end that is not 0 is not shown as 0."""
    return f"[{', '.join(_end(scale * end, digits) for end in ends)}]" if ends else ""


def _end(value: float, digits: int) -> str:
    while value and round(value, digits) == 0 and digits < MOST_DIGITS:
        digits += 1
    return f"{value:.{digits}f}" if round(value, digits) or not value else f"{value:.0e}"


def shown_interval(metric: str, ends: tuple[float, float] | None) -> str:
    """Return the interval of a metric, if there is one, as :func:`trainables.metrics.score_text` its values."""
    return interval(ends, scale=unit(metric), digits=2 if is_bounded(metric) else 4)


def difference_text(metric: str, difference: float) -> str:
    """Return a difference in points, or in its own unit if the metric is not between 0 and 1.

    >>> difference_text("map_at_r", 0.0514)
    '+5.1'
    """
    return f"{100 * difference:+.1f}" if is_bounded(metric) else f"{difference:+.4g}"
