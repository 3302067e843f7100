"""A training's checkpoints: ``attempt-<k>/last.pt`` to go on from, ``attempt-<k>/best.pt`` to keep.

Every attempt writes into a folder of its own, so that one that is believed dead but still writes can harm nobody.
"""

import logging
from pathlib import Path
from typing import Any

import torch

from trainables.files import write_whole

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of the training whose spec has ``digest``, below ``directory``."""

    def __init__(self, directory: Path, digest: str) -> None:
        self._root = directory
        self._digest = digest
        self._attempt = self._new_attempt()

    def _attempts(self) -> list[Path]:
        found = self._root.glob("attempt-*")
        return sorted(found, key=lambda path: int(path.name.removeprefix("attempt-")))

    def _new_attempt(self) -> Path:
        self._root.mkdir(parents=True, exist_ok=True)
        while True:
            known = self._attempts()
            number = int(known[-1].name.removeprefix("attempt-")) + 1 if known else 1
            attempt = self._root / f"attempt-{number}"
            try:
                attempt.mkdir()
            except FileExistsError:  # another attempt began at this moment
                continue
            return attempt

    def save_last(self, state: dict[str, Any]) -> None:
        """Keep ``state`` to go on from."""
        self._save("last.pt", state)

    def save_best(self, state: dict[str, Any]) -> str:
        """Keep ``state`` as the best so far; returns its place relative to the training's directory."""
        self._save("best.pt", state)
        return f"{self._attempt.name}/best.pt"

    def _save(self, name: str, state: dict[str, Any]) -> None:
        content = {"digest": self._digest, **state}
        write_whole(self._attempt / name, lambda file: torch.save(content, file))

    def load_last(self) -> dict[str, Any] | None:
        """The newest readable state of this very training, whichever attempt wrote it."""
        for attempt in reversed(self._attempts()):
            path = attempt / "last.pt"
            if not path.exists():
                continue
            try:
                state = load_checkpoint(path)
            except Exception as error:  # a damaged file raises whatever the reader trips over
                logger.warning("%s cannot be read (%s); an older checkpoint is used.", path, type(error).__name__)
                continue
            if state["digest"] == self._digest:
                return state
            logger.warning("%s belongs to another training; it is not used.", path)
        return None


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The state stored at ``path``, on the CPU; nothing in it is executed."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def forget_last(directory: Path) -> None:
    """Remove what only an unfinished training needs."""
    for path in directory.glob("attempt-*/last.pt"):
        path.unlink(missing_ok=True)
