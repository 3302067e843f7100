"""What is being done before there is anything else to show."""

from contextlib import AbstractContextManager, nullcontext

from rich.console import Console


def phase(console: Console, text: str) -> AbstractContextManager[object]:
    """Show ``text`` on a terminal, until the end of the block; elsewhere nothing."""
    return console.status(text) if console.is_terminal else nullcontext()
