"""Checks of refused input: exit code 2, the expected sentences, and nothing created or changed."""

import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here

from trainables.common.errors import InvalidInput

NOWHERE = "127.0.0.1:9"
"""An address without Ray. Input that should fail but passes fails here, so that no row of a table ever trains."""
GUARD = f"RAY_ADDRESS is '{NOWHERE}' and nothing answers there"

GOOD = "name: row\ndataset: {name: glyphs}\nlosses: [proxy_anchor, pnp]\n"
"""A correct search file."""


def laid_over(text: str, good: str = GOOD) -> str:
    """Return ``text`` preceded by the sections of a ``good`` file that it does not have."""
    begun = set(re.findall(r"^[\"']?(\w+)[\"']?:", text, re.MULTILINE))
    kept = [line for line in good.splitlines() if line.partition(":")[0] not in begun]
    return "\n".join((*kept, text, ""))


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail if the block takes longer."""

    def late(*_: object) -> None:
        pytest.fail(f"it hangs: {seconds} s are over")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return all files in a folder with their bytes, except locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.suffix not in (".lock", ".used")
    }


def refused(folder: Path, arguments: Sequence[str | Path], *sentences: str) -> str:
    """Check that the command prints one line with each of ``sentences``, no other, and does not change ``folder``.

    Returns:
        What it printed.
    """
    before = contents(folder)
    with within(60):
        done = holdout_here(*arguments, code=2)
    # A slow machine is told what takes long.
    said = [line for line in done.stderr.splitlines() if line and not (line.startswith(GUARD) or line.endswith(" …"))]
    assert "Traceback" not in done.stderr, done.stderr
    assert re.sub(r"\x1b\[[0-9;]*m", "", done.stderr).replace("\n", "").isprintable()
    for sentence in sentences:
        assert any(sentence in line for line in said), (sentence, said)
    assert len(said) == len(sentences), said
    assert done.stdout == ""
    assert contents(folder) == before
    return done.stderr


def sentences_of(refused: Callable[..., object], *arguments: Any, **options: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        refused(*arguments, **options)
    return caught.value.sentences
