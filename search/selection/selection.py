"""The frozen selection, and the sealed test set."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial, TrialState

from search.difference import Family, Recommendation
from search.selection.choice import Confirmation
from search.selection.ledger import Opening
from search.stages import Role
from trainables.common.errors import InvalidInput
from trainables.common.files import json_digest, reading, write_json
from trainables.data.dataset import Dataset
from trainables.data.split import ClassSplit
from trainables.data.store.store_spec import StoreSpec

# The exported model of a loss, determined before the test is opened.

EXPORTED = (
    "of the models that are trained for the test with the chosen configuration, the first seed's, of the first fold "
    "where there are folds; where that training fails, the next one's"
)
"""Not the model with the best score: its expected score is the mean over all seeds."""


def exported_trial(finals: Sequence[FrozenTrial], chosen: Confirmation) -> FrozenTrial | None:
    """Return the trial among the ``finals`` of a loss whose model is exported; None if no model is trained."""
    return next(
        (
            trial
            for trial in finals
            if trial.state == TrialState.COMPLETE and trial.user_attrs["source_trial"] == chosen.number
        ),
        None,
    )


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The frozen choice of a search, which the test stage requires.

    ``id`` distinguishes it from an equal selection of another search. ``recommended`` is the one model of the search,
    chosen on its training classes. ``test_metrics`` are computed in the test,
    ``family`` is the table of the test, and ``exported`` describes the exported model of a loss. ``trained_on_opened``
    is the warning of a search that trains on images of an opened test set, None if there were none, and ``baselines``
    the digest of the scores of the networks without training, None if the search has none.
    """

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
        return json_digest(self._content())

    def _content(self) -> dict[str, Any]:
        return {**asdict(self), "family": self.family.to_json()}

    def save(self, path: Path) -> None:
        write_json(path, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """Return the selection and its digest, for ``selection.json``."""
        return {**self._content(), "digest": self.digest}

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
            selection = cls(
                **{
                    **content,
                    **{
                        role: {loss: _confirmation(entry) for loss, entry in content[role].items()}
                        for role in ("chosen", "defaults")
                    },
                    "test_metrics": tuple(content["test_metrics"]),
                    "recommended": Recommendation(**content["recommended"]),
                    "family": Family.from_json(content["family"]),
                }
            )
        if selection.digest != digest:
            raise InvalidInput(
                f"{path} was changed after it was frozen (its digest does not match); "
                "restore it, or search under a new name."
            )
        return selection


def _confirmation(entry: dict[str, Any]) -> Confirmation:
    return Confirmation(**{**entry, **{name: tuple(entry[name]) for name in ("searched", "values", "best_epochs")}})


def study_digest(trials: Sequence[FrozenTrial]) -> str:
    """Return the SHA-256 of a study: everything in its trials, except their start and end times."""
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
    return json_digest(content)


REPAIR = "Repair them before the test: it refuses what cannot be read, and no stage before it reads them."


@dataclass(frozen=True, kw_only=True)
class SealedTest:
    """The test classes of a search, whose pixels need a frozen selection and an opening in the ledger.

    Their files may be inspected before, since a damaged file would otherwise be found after all trainings. No image is
    decoded then, and the result is only used in a message.
    """

    dataset: Dataset
    split: ClassSplit
    short_side: int
    cache: str

    def damage(self, seconds: float) -> str | None:
        """Inspect the files of the test images for at most ``seconds``; return a message about damaged ones."""
        from trainables.data.images import inspect  # imports numpy and Pillow

        classes = self.dataset.classes()
        keys = [key for name in self.split.test for key in classes[name]]
        seen = inspect(self.dataset.damage, keys, seconds=seconds)
        sentence = seen.sentence(f"{self.dataset.noun} of test classes")
        return f"{sentence} {REPAIR}" if sentence and seen.damaged else sentence

    def images(self, selection: Selection, opening: Opening) -> StoreSpec:
        """Return the test images for a selection of this split and its opening."""
        assert selection.split_digest == self.split.digest, "the selection is of another split"
        assert selection.digest in opening.selections.values(), "the opening is of another selection"
        assert opening.test_digest == self.split.test_digest, "the opening is of another test set"
        return StoreSpec(
            dataset=self.dataset, class_names=self.split.test, short_side=self.short_side, cache=self.cache
        )
