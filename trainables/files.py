"""Files are written whole or not at all."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a new file and put it at ``path`` in one step, so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON; NaN and infinity are refused, since JSON has neither."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))
