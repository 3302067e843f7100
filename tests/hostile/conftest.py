"""Where the commands of the tables are given."""

from pathlib import Path

import pytest
from support.refusals import NOWHERE


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the command is given in."""
    monkeypatch.setenv("RAY_ADDRESS", NOWHERE)
    monkeypatch.chdir(tmp_path)
    return tmp_path
