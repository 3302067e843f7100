"""Commands for searches on a cluster: `submit`, `list`, `logs`, `stop`, `wait`."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import RUNS, Json, Settings
from search.cli.output import rendered, say, show

if TYPE_CHECKING:
    from search.engines.ray_jobs import SearchJob
    from search.report.text_table import TextTable


# What a search says in the log of its job, without what Ray says there: hundreds of lines when a machine dies.

_RAYS = re.compile(
    r"(\x1b\[\d+m)?\((pid=)?(raylet|gcs_server|autoscaler|log_monitor)\b[^)]*\)"  # of its own processes
    r"|(\S*\(\w+ pid=[^)]*\)\S* )?\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z] \d+ \d+\]"  # of its C++ in ours
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\t[A-Z]+ \S+\.py:\d+ -- "  # of its Python
    r"|\t\(\d\) "  # the further causes of what it says
    r"|Running entrypoint for job "
)
"""How its lines begin."""
_LOG_FOLLOWS = "Raylet logs:"
"""How the line ends after which it shows the end of a dead machine's log, indented, and then an empty line."""


class LogFilter:
    """Takes a log piece by piece, as it comes, and gives what is not Ray's; ``left_out`` counts Ray's lines.

    What workers say is the search's: Ray writes ``(TrainingTrial pid=…)`` before it.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._begun = ""
        self._in_raylet_log = False

    def take(self, text: str) -> str:
        """The search's lines that end in ``text``."""
        *lines, self._begun = (self._begun + text).split("\n")
        return "".join(f"{line}\n" for line in lines if self._is_own(line))

    def end(self) -> str:
        """The search's last line, where the log does not end with a line's end."""
        begun, self._begun = self._begun, ""
        return begun if begun and self._is_own(begun) else ""

    def _is_own(self, line: str) -> bool:
        is_own = not self._is_rays(line)
        self.left_out += not is_own
        return is_own

    def _is_rays(self, line: str) -> bool:
        if self._in_raylet_log and (not line or line.startswith("    ")):
            self._in_raylet_log = bool(line)
            return True
        is_rays = bool(_RAYS.match(line))
        self._in_raylet_log = is_rays and line.endswith(_LOG_FOLLOWS)
        return is_rays


def without_ray(log: str) -> tuple[str, int]:
    """The search's lines of a whole log, and how many of Ray's are left out."""
    lines = LogFilter()
    return lines.take(log) + lines.end(), lines.left_out


# The commands for a search or campaign on a cluster: submit, list, logs, stop, wait.

Address = Annotated[str, typer.Option("--address", metavar="URL", help="The cluster's dashboard.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A search or campaign that was submitted.")]
OnlyRuns = Annotated[Path | None, typer.Option("--runs", help="Only what is in this runs folder of the cluster.")]
ADDRESS = "http://127.0.0.1:8265"


def submit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A search or campaign file, or a recipe's or campaign's name.")
    ],
    settings: Settings = None,
    runs: Annotated[
        Path,
        typer.Option(
            "--runs",
            envvar="HOLDOUT_RUNS",
            help="The runs folder on the cluster; a relative one is in the home folder there.",
        ),
    ] = RUNS,
    address: Address = ADDRESS,
    as_json: Json = False,
) -> None:
    """Have a cluster start a search or campaign, or go on with it."""
    from search.campaigns import comparable
    from search.config.recipes import any_file, is_campaign, of_its_losses
    from search.config.yaml_file import apply_settings, read_yaml
    from search.driver.submission import submission
    from search.engines.ray_jobs import connected

    written = read_yaml(any_file(file))
    content = apply_settings(written, settings or [])
    submitted = submission((comparable if is_campaign(written) else of_its_losses)(content, written))
    name = submitted.name
    with connected(address) as jobs:
        job, is_new = jobs.submit(submitted, str(runs))
    done = "is submitted" if is_new else "is there already and runs; this is it"
    show(f"{name} {done} ({job.job}). `holdout logs {name} --follow` shows what it does.", _record(job), as_json)


def list_searches(runs: OnlyRuns = None, address: Address = ADDRESS, as_json: Json = False) -> None:
    """The searches of a cluster."""
    from search.engines.ray_jobs import connected

    with connected(address) as jobs:
        found = jobs.searches(_only(runs))
    location = address if runs is None else f"{address} in {runs}"
    show("" if as_json else rendered([_table(found, location)]), [_record(job) for job in found], as_json)


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the search ends.")] = False,
    whole: Annotated[bool, typer.Option("--all", help="Ray's own lines too.")] = False,
    runs: OnlyRuns = None,
    address: Address = ADDRESS,
    as_json: Json = False,
) -> None:
    """What a search on a cluster says, its workers' errors among it."""
    from search.engines.ray_jobs import connected

    lines = LogFilter()

    def take(text: str) -> str:
        return text if whole else lines.take(text)

    with connected(address) as jobs:
        job = jobs.get(name, _only(runs))
        if follow and not as_json:
            jobs.follow(job, lambda text: print(take(text), end="", flush=True))
            shown = lines.end()
        else:
            if follow:
                job = jobs.wait(job)
            shown = take(jobs.log(job)) + lines.end()
    if as_json:
        show("", {**_record(job), "log": shown, "left_out": lines.left_out}, as_json)
        return
    print(shown, end="", flush=True)
    if lines.left_out:
        say([f"{lines.left_out:,} lines of Ray's own are left out; `holdout logs {name} --all` shows them."])


def stop(name: Name, runs: OnlyRuns = None, address: Address = ADDRESS, as_json: Json = False) -> None:
    """End a search on a cluster; `submit` goes on with it."""
    from search.engines.ray_jobs import connected

    with connected(address) as jobs:
        job = jobs.get(name, _only(runs))
        was_live = job.is_live
        if was_live:
            job = jobs.stop(job)
    done = "is stopped; `holdout submit` its file goes on" if was_live else f"does not run: it has {job.state}"
    show(f"{name} {done}.", _record(job), as_json)


def wait(name: Name, runs: OnlyRuns = None, address: Address = ADDRESS, as_json: Json = False) -> None:
    """Wait until a search on a cluster has ended; the exit code is the search's own, and 1 where it was stopped."""
    from search.engines.ray_jobs import MISTAKE, connected

    with connected(address) as jobs:
        job = jobs.wait(jobs.get(name, _only(runs)))
        if job.state == "failed":
            log = jobs.log(job)
            own, _ = without_ray(log)
            say((own or log).splitlines()[-20:])
    show(f"{name}: {job.state}.", _record(job), as_json)
    if job.state != "succeeded":
        raise typer.Exit(MISTAKE if job.exit_code == MISTAKE else 1)


def _only(runs: Path | None) -> str | None:
    return None if runs is None else str(runs)


def _record(job: "SearchJob") -> dict[str, Any]:
    return asdict(job)


def _table(found: list["SearchJob"], location: str) -> "TextTable":
    from search.report.text_table import NOTHING, TextTable

    return TextTable(
        title=f"Searches at {location}",
        header=("search", "state", "since", "until", "runs folder", "job"),
        rows=tuple(
            (job.name, job.state, job.started or NOTHING, job.ended or NOTHING, job.runs, job.job) for job in found
        ),
        labels=2,
        notes=() if found else (f"No search at {location}.",),
    )
