"""``holdout``: the program, its exit codes and its error messages.

A command's module imports nothing but typer; what a command needs it imports when it runs, so that ``--help`` and a
mistyped command answer at once.
"""

import errno
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from search import __version__
from search.cli import catalogue, check, cluster, datasets, disk, look, models, run, trials
from search.cli.output import say, set_up_logging
from search.config.names import find_parts_here
from trainables.mistakes import Failure, Mistakes
from trainables.storage import DiskFull, is_full

FAILED, MISTAKE = 1, 2
UNUSABLE = (
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS,
)  # fmt: skip
"""Why a path that was given does not serve, wherever that shows."""

app = typer.Typer(
    name="holdout",
    help="Hyperparameter search for deep metric learning that never peeks at the test classes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PANELS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Search": (datasets.init, run.run, run.select, run.test, run.audit, run.campaign),
    "Results": (look.status, trials.trials, trials.show, look.compare, look.verify, run.sync),
    "Pictures": (look.report, look.serve),
    "Models": (models.export, models.embed, models.index, models.query, models.register),
    "Disk": (disk.disk, disk.remove, disk.trim),
    "Cluster": (cluster.submit, cluster.list_searches, cluster.logs, cluster.stop, cluster.wait),
    "What there is": (
        catalogue.losses,
        datasets.datasets,
        catalogue.backbones,
        catalogue.papers,
        check.check,
        look.doctor,
    ),
}
NAMES: dict[Callable[..., Any], str] = {cluster.list_searches: "list"}  # `list` is Python's own word
GO_ON = {"run", "select", "test", "audit", "campaign", "sync"}
"""The commands that begin where they were interrupted."""
for panel, commands in PANELS.items():
    for command in commands:
        app.command(NAMES.get(command), rich_help_panel=panel)(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"holdout {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line: 0 done, 1 failed, 2 a user's mistake, 130 interrupted."""
    set_up_logging()
    find_parts_here()
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C, and `kill` or `holdout stop`
        signal.signal(number, _interrupt)
    try:
        app()
    except Mistakes as error:
        say(error.sentences, "red")
        sys.exit(MISTAKE)
    except Failure as error:
        say([str(error)], "red")
        sys.exit(FAILED)
    except OSError as error:
        if is_full(error):
            say([str(DiskFull.at(Path(error.filename or ".").absolute()))], "red")
            sys.exit(FAILED)
        if error.errno not in UNUSABLE or error.filename is None:
            raise
        path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
        shown = path if len(path) <= 80 else f"{path[:77]}…"
        say([f"{shown!r} cannot be used ({error.strerror}); name another path, or permit what was asked."], "red")
        sys.exit(MISTAKE)


def _interrupt(*_: object) -> None:
    """End, at once and in one line, which comes first: who asked may wait for seconds (Ray: three) and then kill."""
    goes_on = " The same command goes on where this one stopped." if GO_ON.intersection(sys.argv[1:2]) else ""
    say([f"Interrupted.{goes_on}"], "yellow")
    logging.disable()  # libraries complain of being torn out of their work
    raise KeyboardInterrupt
