"""What every row of a table of bad input is held to: code 2, its sentences, and nothing made or changed."""

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.commands import holdout_here, plain

NOWHERE = "127.0.0.1:9"
"""Where no Ray is. What is not refused for itself is refused for this, so that nothing of a table ever trains."""
GUARD = f"RAY_ADDRESS is '{NOWHERE}' and nothing answers there"

GOOD = "name: row\ndataset: {name: glyphs}\nlosses: [proxy_anchor, pnp]\n"
"""A search file in which nothing is wrong."""


def laid_over(text: str, good: str = GOOD) -> str:
    """``text`` as a file: the sections of a ``good`` one that it does not begin itself come before it."""
    begun = set(re.findall(r"^[\"']?(\w+)[\"']?:", text, re.MULTILINE))
    kept = [line for line in good.splitlines() if line.partition(":")[0] not in begun]
    return "\n".join((*kept, text, ""))


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail where it takes longer."""

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
    """All that lies below a folder, byte for byte; locks only say that a process looked."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if path.suffix not in (".lock", ".used")
    }


def refused(folder: Path, arguments: Sequence[str | Path], *sentences: str, at_most: int = 60) -> None:
    """The command says these ``sentences`` (or begins of them, or what they hold) and no other, and leaves
    ``folder``, in which it is given, as it was.
    """
    before = contents(folder)
    with within(at_most):
        done = holdout_here(*arguments, code=2)
    said = [line for line in done.stderr.splitlines() if line and not line.startswith(GUARD)]
    assert "Traceback" not in done.stderr, done.stderr
    assert re.sub(r"\x1b\[[0-9;]*m", "", done.stderr).replace("\n", "").isprintable()
    for sentence in sentences:
        assert any(sentence in line for line in said), (sentence, said)
    assert len(said) == len(sentences), said
    assert done.stdout == ""
    assert contents(folder) == before


def usage_refused(folder: Path, arguments: Sequence[str | Path], sentence: str) -> None:
    """As :func:`refused`, of words that no command understands: the frame around the sentence is typer's."""
    before = contents(folder)
    with within(60):
        done = holdout_here(*arguments, code=2)
    said = plain(re.sub(r"[│╭╮╰╯─]", " ", done.stderr))
    assert sentence in said, said
    assert "Traceback" not in said
    assert done.stdout == ""
    assert contents(folder) == before
