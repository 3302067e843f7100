"""``holdout verify``: a search or a campaign, recomputed from its records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search.cli.options import RUNS, Json, Runs, known_names
from search.cli.output import show, show_line
from trainables.mistakes import Failure, Mistakes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from search.plan.runs import RunFolder
    from search.verify.check import Check


def verify(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A search or campaign.", autocompletion=known_names)],
    retrain: Annotated[
        str | None,
        typer.Option(
            "--retrain", metavar="LOSS:NUMBER", help="Also train one trial again, as in mpa:3 or mpa@final:0."
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Recompute everything from the records alone, and say what differs from what is stored."""
    found = []
    for check in _checks(runs, name, retrain):
        found.append(check)
        if not as_json and not check.problem:
            show_line(f"{'ok ' if check.is_there else '-- '} {check.what}{'' if check.is_there else ': not there yet'}")
    problem = found[-1].problem
    if as_json:
        show("", {"name": name, "ok": problem is None, "checks": [check._asdict() for check in found]}, as_json)
    if problem:
        raise Failure(problem)


def _checks(runs: Path, name: str, retrain: str | None) -> "Iterator[Check]":
    from search.plan.runs import RunFolder, existing_run
    from search.plan.stored import StoredSearch

    if RunFolder(runs, name).is_campaign:
        from search.campaigns.folder import CampaignFolder
        from search.verify.campaign import verify_campaign

        if retrain:
            raise Mistakes(f"--retrain: {name} is a campaign; name one of its searches (`holdout status {name}`).")
        folder = CampaignFolder(runs, name)
        for search in folder.searches():
            _refuse_running(RunFolder(runs, search))
        yield from verify_campaign(folder)
        return
    from search.verify.retraining import Retraining
    from search.verify.verify import verify as verify_search

    run = existing_run(runs, name)
    _refuse_running(run)
    again = Retraining.of(StoredSearch(run), retrain) if retrain else None
    check = None
    for check in verify_search(run):
        yield check
    if again and not (check and check.problem):
        yield from again.check()


def _refuse_running(run: "RunFolder") -> None:
    """What changes while it is read fits nothing."""
    if run.path.exists() and (driver := run.driver()):
        raise Mistakes(f"{run.name} is being run by {driver}; verify it when that has ended.")
