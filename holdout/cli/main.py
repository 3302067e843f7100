"""``holdout``: the program, its commands, exit codes and error messages.

Modules of commands import only light modules; a command imports what it needs when it runs, so that ``--help`` and a
mistyped command answer at once. A command that is named loads its own module alone.
"""

import errno
import logging
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from holdout.cli.output import LEAST_WIDTH, say, set_up_logging
from search import __version__
from search.config.names import find_parts_here
from trainables.common.errors import Failure, InvalidInput, shortened
from trainables.common.storage import DiskFull, is_full

FAILED, MISTAKE = 1, 2
UNUSABLE = (
    errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM, errno.EROFS,
)  # fmt: skip
"""Error numbers that mean that a path given by the user cannot be used."""


class _PlainFlags:
    """Flags that have no type in ``--help``, as they take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class _Group(_PlainFlags, TyperGroup):
    """The program."""


class _Command(_PlainFlags, TyperCommand):
    """A command; ``~`` in its paths is expanded."""

    def invoke(self, ctx: Any) -> Any:
        ctx.params.update({name: _expanded(value) for name, value in ctx.params.items()})
        return super().invoke(ctx)


def _expanded(value: Any) -> Any:
    """Expand ``~`` in a path or in each of a list: no shell does it in ``--runs=~/x``, or in a variable."""
    if isinstance(value, list):
        return [*map(_expanded, value)]
    return Path(os.path.expanduser(value)) if isinstance(value, Path) else value


PANELS: dict[str, tuple[str, ...]] = {
    "Search": ("datasets:init", "run:run", "run:select", "run:test", "run:enqueue"),
    "Results": ("cluster:status", "results:trials", "results:compare", "results:verify", "run:sync"),
    "Pictures": ("results:report", "results:serve"),
    "Models": ("models:export", "models:embed", "models:index", "models:query"),
    "Disk": ("disk:disk", "disk:remove"),
    "Cluster": ("cluster:submit", "cluster:logs", "cluster:stop"),
    "Catalogue and checks": (
        "catalogue:keys", "catalogue:losses", "datasets:datasets", "catalogue:backbones", "catalogue:papers",
        "catalogue:check", "results:doctor",
    ),
    "Vault": ("datasets:vault",),
}  # fmt: skip
"""The commands, as ``module:name``, by heading of ``--help``."""

RESUMABLE = {"run", "select", "test", "sync"}
"""The commands that resume where they were interrupted."""


def program(command: str | None = None) -> typer.Typer:
    """Return the command line; only with ``command`` if that is one of the commands, since each has its imports."""
    app = typer.Typer(
        name="holdout",
        cls=_Group,
        help="Hyperparameter search for deep metric learning whose trainings and choice use no test classes.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    rows = [(panel, place.rpartition(":")[2], place) for panel, places in PANELS.items() for place in places]
    for panel, name, place in [row for row in rows if row[1] == command] or rows:
        module, _, function = place.partition(":")
        register = app.command(name, cls=_Command, rich_help_panel=panel)
        register(getattr(import_module(f"{__package__}.{module}"), function))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"holdout {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 failure, 2 a user's mistake, 130 interrupted."""
    set_up_logging()
    if os.environ.get("COLUMNS", "").removeprefix("-").isdecimal() and int(os.environ["COLUMNS"]) < LEAST_WIDTH:
        del os.environ["COLUMNS"]  # Typer's help would print nothing
    words = sys.argv[1:]
    del sys.argv[1:]  # a user's code may parse the command line
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C, and `kill` or `holdout stop`
        signal.signal(number, lambda *_: _interrupt(words[:1]))
    try:
        if words[:2] != ["vault", "answer"]:  # `sudo` runs it in the folder of who asks
            find_parts_here()
        # Without standalone mode Typer raises its errors and returns the exit code; None after a command.
        code = program(*words[:1])(args=words or ["--help"], standalone_mode=False) or 0
        sys.exit(code if words else MISTAKE)
    except typer.TyperException as error:
        _end(MISTAKE, _usage(error))
    except typer.Abort:  # Ctrl-D at a question
        _end(FAILED)
    except InvalidInput as error:
        _end(MISTAKE, *error.sentences)
    except Failure as error:
        _end(FAILED, str(error))
    except RecursionError:  # raised by os.walk and shutil.rmtree
        _end(MISTAKE, "Folders are nested in more levels than this command can follow; move or remove them.")
    except RuntimeError as error:
        if "home directory" not in str(error):
            raise
        _end(MISTAKE, "This user has no home folder; set HOME to a folder that can be written to.")
    except OSError as error:
        if is_full(error):
            where = Path(error.filename).absolute() if error.filename else "the output, or temporary files"
            _end(FAILED, str(DiskFull.at(where)))
        if error.errno not in UNUSABLE or error.filename is None:
            raise
        path = os.fsdecode(error.filename) if isinstance(error.filename, bytes) else str(error.filename)
        fix = "name another path, or change its permissions"
        _end(MISTAKE, f"{shortened(path)!r} cannot be used ({error.strerror}); {fix}.")


def _end(code: int, *sentences: str) -> NoReturn:
    say(sentences, "red")
    sys.exit(code)


def _usage(error: typer.TyperException) -> str:
    message = error.format_message().partition(", unable to parse")[0]
    for word, plain in {"Input should be": "it must be", "Value error, ": ""}.items():  # pydantic's
        message = message.replace(word, plain)
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "holdout"
    end = "" if message.endswith((".", "?")) else "."
    return f"{message}{end} `{command} --help` {'explains it' if ' ' in command else 'lists the commands'}."


def _interrupt(words: list[str]) -> None:
    """Print a line and end. The line comes first, since the sender may kill the process soon (Ray: after 3 s)."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it twice
    resume = " The same command resumes where this one stopped." if RESUMABLE.intersection(words) else ""
    say([f"Interrupted.{resume}"], "yellow")
    logging.disable()  # libraries log errors when they are interrupted
    raise KeyboardInterrupt
