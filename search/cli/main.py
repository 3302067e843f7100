"""``holdout``: the program, its exit codes and its error messages."""

import logging
import signal
import sys
from collections.abc import Callable, Sequence

import typer

from search.cli import backbones, campaign, cluster, compare, datasets, doctor, run, show
from search.cli.output import messages, set_up_logging
from search.cluster.jobs import MISTAKE, ClusterFailure
from search.cluster.session import NoRay
from search.stages.freeze import NothingToSelect
from trainables.mistakes import Mistakes

app = typer.Typer(
    name="holdout",
    help="Hyperparameter search for deep metric learning that never peeks at the test classes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
COMMANDS: tuple[Callable[..., None], ...] = (
    run.run, run.select, run.test, run.sync, campaign.campaign, show.status, compare.compare, show.losses,
    datasets.datasets, backbones.backbones, cluster.submit, cluster.logs, cluster.stop, cluster.wait, doctor.doctor,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
app.command("list")(cluster.list_searches)  # `list` is Python's own word

FAILED = 1


def main() -> None:
    """Run the command line: 0 done, 1 failed, 2 a user's mistake, 130 interrupted."""
    set_up_logging()
    for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C, and `kill` or `holdout stop`
        signal.signal(number, _interrupt)
    try:
        app()
    except Mistakes as error:
        _say(error.sentences, "red")
        sys.exit(MISTAKE)
    except (NothingToSelect, NoRay, ClusterFailure) as error:
        _say([str(error)], "red")
        sys.exit(FAILED)


def _interrupt(*_: object) -> None:
    """End, at once and in one line, which comes first: who asked may wait for seconds (Ray: three) and then kill."""
    _say(["Interrupted. The same command goes on where this one stopped."], "yellow")
    logging.disable()  # what libraries tell of being torn out of their work concerns nobody
    raise KeyboardInterrupt


def _say(sentences: Sequence[str], style: str) -> None:
    for sentence in sentences:
        messages.print(sentence, style=style, highlight=False, markup=False, soft_wrap=True)
