"""What a search came to for one loss."""

from collections.abc import Mapping

from search.report.diagnostics.finding import Finding
from search.report.results.audit import PruningAudit
from search.report.results.incumbent import Incumbent
from search.report.results.result import Result
from search.report.results.seed_statistics import SeedInterval, SeedOutcomes, SeedStatistics
from search.selection.role import Role
from spaces.value import Value


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
