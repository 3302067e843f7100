"""The frozen selection, the table it announces, and the seal of the test classes."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial, TrialState

from search.selection.choice import Confirmation
from search.selection.ledger import Opening
from search.stages import Role
from trainables.data.dataset import Dataset
from trainables.data.split import ClassSplit
from trainables.data.store.spec import StoreSpec
from trainables.files import reading, write_json
from trainables.mistakes import Mistakes

# Which trained model of a loss is handed out: settled with the choice, before the test is opened.

EXPORTED = (
    "of the models that are trained for the test with the chosen configuration, the first seed's, of the first fold "
    "where there are folds; where that training fails, the next one's"
)
"""Never the one with the best score: the mean over all seeds is what can be expected of it."""


def exported_trial(finals: Sequence[FrozenTrial], chosen: Confirmation) -> FrozenTrial | None:
    """The one of the ``finals`` of a loss whose model is handed out; None where none is trained."""
    return next(
        (
            trial
            for trial in finals
            if trial.state == TrialState.COMPLETE and trial.user_attrs["source_trial"] == chosen.number
        ),
        None,
    )


# Which table the test makes: its metrics, its rows, and the pairs whose differences are tested together.

RowName = tuple[str, str, str]
"""A row: its search, its loss and its role."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A table's test metrics, rows and pairs, without order. It is frozen with the choice, before there are numbers."""

    metrics: frozenset[str]
    rows: frozenset[RowName]
    pairs: frozenset[frozenset[RowName]]

    def to_json(self) -> dict[str, Any]:
        """The family, for ``selection.json``; equal ones are written alike."""
        return {
            "metrics": sorted(self.metrics),
            "rows": sorted(map(list, self.rows)),
            "pairs": sorted(sorted(map(list, pair)) for pair in self.pairs),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Family":
        """The family that :meth:`to_json` wrote."""
        return cls(
            metrics=frozenset(content["metrics"]),
            rows=frozenset(tuple(row) for row in content["rows"]),
            pairs=frozenset(frozenset(tuple(row) for row in pair) for pair in content["pairs"]),
        )


# The choice, frozen before the test can be opened.


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What was chosen, frozen: the only thing that the test stage takes.

    ``id`` tells it from the equal selection of another search. ``test_metrics`` are those that the test computes, and
    ``family`` is the table that it makes. ``exported`` says which of a loss's models will be handed out.
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

    @property
    def digest(self) -> str:
        """SHA-256 of the whole selection."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        return {**asdict(self), "family": self.family.to_json()}

    def save(self, path: Path) -> None:
        """Freeze the selection at ``path``."""
        write_json(path, self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The selection and its digest, for ``selection.json``."""
        return {**self._content(), "digest": self.digest}

    def configurations(self, loss: str) -> list[Confirmation]:
        """What of ``loss`` is trained for the test: the chosen configuration, and the default where that is another."""
        entries = (self.chosen[loss], self.defaults[loss])
        return list({entry.number: entry for entry in entries}.values())

    def role(self, loss: str, entry: Confirmation) -> Role:
        """What ``entry`` is of ``loss``; the chosen one is tuned also where it is the default."""
        return Role.TUNED if entry.number == self.chosen[loss].number else Role.DEFAULT

    @classmethod
    def load(cls, path: Path) -> "Selection":
        """The selection frozen at ``path``.

        Raises:
            Mistakes: there is none, another version wrote it, or it was changed since.
        """
        if not path.is_file():
            raise Mistakes(f"Nothing is selected yet: {path} does not exist; `holdout select` makes it.")
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
                    "family": Family.from_json(content["family"]),
                }
            )
        if selection.digest != digest:
            raise Mistakes(
                f"{path} was changed after it was frozen (its digest does not fit); "
                "restore it, or search under a new name."
            )
        return selection


def _confirmation(entry: dict[str, Any]) -> Confirmation:
    return Confirmation(
        **{**entry, **{name: tuple(entry[name]) for name in ("searched", "values", "splits", "best_epochs")}}
    )


def study_digest(trials: Sequence[FrozenTrial]) -> str:
    """SHA-256 of what a study says: all of every trial, its epochs too, but for the times of its row."""
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
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# The test classes' seal: their store can only be asked for with a frozen selection and an opening in the ledger.
#
# The seal is on pixels. The files may be looked at from outside before, since one that is damaged would else be found
# after all trainings: no image is decoded, and nothing that is seen goes anywhere but into a sentence.

MEND = "Mend them before the test: it refuses images that cannot be decoded, and nothing before it reads them."


@dataclass(frozen=True, kw_only=True)
class SealedTest:
    """The held-out classes of a search."""

    dataset: Dataset
    split: ClassSplit
    short_side: int
    cache: str

    def damage(self, seconds: float) -> str | None:
        """The sentence on those test images that look damaged from outside, looked for in so many seconds."""
        from trainables.data.header import look_at  # imports numpy and Pillow

        classes = self.dataset.classes()
        keys = [key for name in self.split.test for key in classes[name]]
        look = look_at(self.dataset, keys, seconds=seconds)
        sentence = look.sentence("test classes")
        return f"{sentence} {MEND}" if sentence and look.damaged else sentence

    def images(self, selection: Selection, opening: Opening) -> StoreSpec:
        """The test images, for a selection that was frozen for this split and opened for this selection."""
        assert selection.split_digest == self.split.digest, "the selection was made on another split"
        assert selection.digest in opening.selections.values(), "the opening is another selection's"
        assert opening.test_digest == self.split.test_digest, "the opening is another test set's"
        return StoreSpec(
            dataset=self.dataset, class_names=self.split.test, short_side=self.short_side, cache=self.cache
        )
