"""The folder of what a user's searches remember whatever their runs folders: the ledger of test openings."""

import os
from pathlib import Path


def state_folder() -> Path:
    """``$XDG_STATE_HOME/holdout``, or ``~/.local/state/holdout``.

    Raises:
        RuntimeError: the user has no home.
    """
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "holdout"
