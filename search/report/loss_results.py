"""The results of a search for one loss."""

from collections.abc import Mapping
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from search.report.rows import Named, Result, Row, SeedStatistics
from search.stages import Role
from spaces.space import Value


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
        choice: the reason of the choice, in words.
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
    choice: str | None
    anytime: tuple[Incumbent, ...]
    front: tuple[FrontTrial, ...]
    diagnostics: tuple[Finding, ...]

    @model_serializer(mode="wrap")
    def _as_stored(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the form of ``summary.json``; :func:`rows_from_stored` is the inverse.

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
            "choice": found.pop("choice"),
            **tuned,
            **found,
        }

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
            f"overtuned? with the fresh seeds of the final trainings its mean is {tuned.mean:.4f}, the default's "
            f"{default.mean:.4f}"
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


_OF_CHOICE = ("params", "number", "search_value")
_NAMES = ("search", "loss", "role", *_OF_CHOICE)


def rows_from_stored(content: dict[str, Any]) -> None:
    """Replace the values of each configuration in the ``content`` of ``summary.json`` with its row, in-place."""
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
