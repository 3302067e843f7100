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
from trainables.files import write_json
from trainables.mistakes import Mistakes


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What was chosen, frozen: the only thing that the test stage takes."""

    search: str
    objective: str
    split_digest: str
    test_digest: str
    studies: Mapping[str, str]
    rule: str
    chosen: Mapping[str, Confirmation]
    defaults: Mapping[str, Confirmation]
    reasons: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the whole selection."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def save(self, path: Path) -> None:
        """Freeze the selection at ``path``."""
        write_json(path, {**asdict(self), "digest": self.digest})

    @classmethod
    def load(cls, path: Path) -> "Selection":
        """The selection frozen at ``path``.

        Raises:
            Mistakes: there is none, or it was changed since.
        """
        if not path.is_file():
            raise Mistakes(f"Nothing is selected yet: {path} does not exist; `holdout select` makes it.")
        content = json.loads(path.read_text())
        digest = content.pop("digest")
        for role in ("chosen", "defaults"):
            content[role] = {loss: _confirmation(entry) for loss, entry in content[role].items()}
        selection = cls(**content)
        if selection.digest != digest:
            raise Mistakes(
                f"{path} was changed after it was frozen (its digest does not fit); "
                "restore it, or search under a new name."
            )
        return selection


def _confirmation(entry: dict[str, Any]) -> Confirmation:
    return Confirmation(**{**entry, **{name: tuple(entry[name]) for name in ("searched", "values", "best_epochs")}})


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
