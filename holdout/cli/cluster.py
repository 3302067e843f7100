"""Commands for running searches, here or on a cluster: `status`, and for a cluster `submit`, `logs`, `stop`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdout.cli.options import RUNS, AllowFailed, Json, Runs, SearchFile, Settings, known_names
from holdout.cli.output import Tables, say, show
from search import records  # whose modules load on first use
from search.stages import Stage
from search.text_table import NOTHING, TextTable
from trainables.common.errors import counted
from trainables.metrics import score_text

if TYPE_CHECKING:
    from holdout.cli.ray_jobs import SearchJob


Address = Annotated[str, typer.Option("--address", metavar="URL", help="The cluster's dashboard.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a submitted search or campaign.")]
OnlyRuns = Annotated[str | None, typer.Option("--runs", help="Only searches in this runs folder of the cluster.")]
ADDRESS = "http://127.0.0.1:8265"


COLUMNS = ("search", "stage", "loss", "running", "complete", "pruned", "failed", "of", "best in search")


def status(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A search or campaign; by default all of them.", autocompletion=known_names
        ),
    ] = None,
    runs: Runs = RUNS,
    address: Annotated[
        str | None, typer.Option("--address", metavar="URL", help="Ask the cluster with this dashboard.")
    ] = None,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="List the cluster's jobs instead, each with state, times and runs folder.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the searches and their progress, on this machine or on a cluster."""
    if jobs or address:
        from holdout.cli.ray_jobs import connected

        place = address or ADDRESS
        with connected(place) as cluster:
            if jobs:
                listed = cluster.searches() if name is None else [cluster.get(name)]
                show([asdict(job) for job in listed], as_json, lambda: Tables([_jobs_table(listed, place)]))
                return
            found = cluster.status(name, str(runs))
    else:
        found = [asdict(records.status_of(search)) for search in _searches(runs, name)]
    location = f"at {address}" if address else f"in {runs.absolute()}"
    show(found, as_json, lambda: Tables([_status_table(found, location)]))


def _searches(runs: Path, name: str | None) -> "list[records.Records]":
    """Return the search ``name``, the existing searches of the campaign ``name``, or by default all searches."""
    if name is None:
        return [records.Records(folder) for folder in records.find_runs(runs)]
    campaign = records.CampaignFolder(runs, name)
    if not campaign.is_campaign:
        return [records.stored_search(runs, name)]
    folders = [records.RunFolder(runs, search) for search in campaign.searches()]
    return [records.Records(folder) for folder in folders if folder.config.exists()]


def _status_table(found: list[dict[str, Any]], location: str) -> TextTable:
    rows, notes = [], []
    for entry in found:
        state = entry["state"] if entry["finished"] or entry["driver"] else f"{entry['state']}, stopped"
        for baseline, value in entry["baselines"].items():
            rows.append((entry["name"], state, baseline, *[NOTHING] * 5, score_text(entry["objective"], value)))
        for row in entry["studies"]:
            best = score_text(entry["objective"], row["best"] if row["stage"] == Stage.SEARCH else None)
            numbers = [str(row[key]) for key in ("running", "complete", "pruned", "failed", "planned")]
            rows.append((entry["name"], state, row["study"], *numbers, best))
            if row["interrupted"]:
                count = counted(row["interrupted"], "interrupted trial")
                notes.append(f"{entry['name']}/{row['study']}: {count}; `holdout run` with the search's file resumes")
            if row["ended_early"]:
                notes.append(f"{entry['name']}/{row['study']}: {row['ended_early']}")
        if not entry["studies"]:
            rows.append((entry["name"], state, *[""] * (len(COLUMNS) - 2)))
        if entry["problem"]:
            notes.append(f"{entry['name']}: {entry['problem']}")
    jobs = "" if location.startswith("at") else "; `holdout status --jobs` lists those that were submitted to a cluster"
    return TextTable(
        title=f"Searches {location}",
        header=COLUMNS,
        rows=tuple(rows),
        labels=3,
        notes=tuple(notes) if found else (f"There is no search {location}{jobs}.",),
    )


def submit(
    file: SearchFile,
    settings: Settings = None,
    allow_failed: AllowFailed = False,
    runs: Annotated[
        str,
        typer.Option(
            "--runs",
            envvar="HOLDOUT_RUNS",
            help="The runs folder on the cluster; a relative path starts in the home folder there.",
        ),
    ] = str(RUNS),
    address: Address = ADDRESS,
    as_json: Json = False,
) -> None:
    """Start or resume a search or campaign on a cluster."""
    from holdout.cli.ray_jobs import connected
    from holdout.cli.submission import submission
    from search.config.recipes import read_file

    submitted = submission(read_file(file, settings or []))
    name = submitted.name
    with connected(address) as jobs:
        job, is_new = jobs.submit(submitted, runs, *(["--allow-failed"] if allow_failed else []))
    done = "was submitted" if is_new else "is already running"
    follow = f"holdout logs {name} --follow{'' if address == ADDRESS else f' --address {address}'}"
    show(asdict(job), as_json, lambda: f"{name} {done} ({job.job}). `{follow}` shows its log.")


def logs(
    name: Name,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Wait until the search ends; the exit code is then that of the search, 1 if stopped."
        ),
    ] = False,
    whole: Annotated[bool, typer.Option("--all", help="Include Ray's own lines.")] = False,
    runs: OnlyRuns = None,
    address: Address = ADDRESS,
    as_json: Json = False,
) -> None:
    """Show the log of a search on a cluster, including its workers' errors."""
    from holdout.cli.ray_jobs import MISTAKE, LogFilter, connected

    lines, shown = LogFilter(), ""

    def take(text: str) -> str:
        return text if whole else lines.take(text)

    with connected(address) as jobs:
        job = jobs.get(name, runs)
        if follow and not as_json:
            jobs.follow(job, lambda text: print(take(text), end="", flush=True))
        if follow:
            job = jobs.wait(job)
        if as_json or not follow:
            shown = take(jobs.log(job.job))
        shown += lines.end()
    if as_json:
        show({**asdict(job), "log": shown, "left_out": lines.left_out}, as_json, str)
    else:
        print(shown, end="", flush=True)
        if lines.left_out:
            say([f"{counted(lines.left_out, 'line')} of Ray not shown; `holdout logs {name} --all` shows everything."])
        if follow:
            say([f"{name}: {job.state}."])
    if follow and job.state != "succeeded":
        raise typer.Exit(MISTAKE if job.exit_code == MISTAKE else 1)


def stop(name: Name, runs: OnlyRuns = None, address: Address = ADDRESS, as_json: Json = False) -> None:
    """Stop a search on a cluster; `submit` resumes it."""
    from holdout.cli.ray_jobs import connected

    with connected(address) as jobs:
        job = jobs.get(name, runs)
        if was_live := job.is_live:
            job = jobs.stop(job)
    done = (
        "was stopped; `holdout submit` with its file resumes it" if was_live else f"is not running: it has {job.state}"
    )
    show(asdict(job), as_json, lambda: f"{name} {done}.")


def _jobs_table(found: list["SearchJob"], location: str) -> TextTable:
    return TextTable(
        title=f"Searches at {location}",
        header=("search", "state", "since", "until", "runs folder", "job"),
        rows=tuple(
            (job.name, job.state, job.started or NOTHING, job.ended or NOTHING, job.runs, job.job) for job in found
        ),
        labels=2,
        notes=() if found else (f"No search at {location}.",),
    )
