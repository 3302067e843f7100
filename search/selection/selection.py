"""The choice, frozen before the test can be opened."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.trial import FrozenTrial

from search.selection.confirmation import Confirmation
from search.selection.family import Family
from search.selection.role import Role
from trainables.files.whole import reading, write_json
from trainables.mistakes import Mistakes


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
