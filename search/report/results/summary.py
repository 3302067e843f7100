"""``summary.json``: what a search came to so far."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from search.plan.runs import RunFolder
from search.report.results.loss_summary import LossSummary
from search.report.results.noise_summary import NoiseSummary
from search.report.results.result import Result
from trainables.mistakes import Mistakes

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
