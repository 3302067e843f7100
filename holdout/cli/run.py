"""Commands that train: `run`, `select`, `test`; and `enqueue` and `sync`."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from holdout.cli import STARTED
from holdout.cli.options import RUNS, AllowFailed, Json, Name, Names, Output, Runs, SearchFile, Settings, TrustCode
from holdout.cli.output import Tables, messages, say, show
from search import records  # whose modules load on first use
from search.config.names import is_plain_name
from search.driver.progress_view import phase
from search.stages import Stage
from search.text_table import refuse_unknown, write_output
from trainables.common.errors import InvalidInput


def run(
    file: SearchFile,
    settings: Settings = None,
    allow_failed: AllowFailed = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Open the test without asking even if the choice may be due to chance.")
    ] = False,
    output: Output = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Start, resume or extend a search or a campaign, or show the result of a finished one.

    Once its test is opened, more trials, losses or wider ranges need a search of another name, such as birds-2.
    """
    refuse_unknown(output or [])
    with phase(messages(), "Reading the file …"):
        from search.config.recipes import is_campaign, read_file

        content = read_file(file, settings or [])
        from search.driver.start import run_search
    if is_campaign(content):
        _run_campaign(content, settings or [], runs, output or [], allow_failed, as_json)
        return

    def opens(doubt: str) -> bool:
        return yes or (sys.stdin.isatty() and typer.confirm(f"{doubt} Open the test classes?", err=True))

    search = run_search(content, runs, messages(), started=STARTED, allow_failed=allow_failed, opens=opens)
    for path in output or []:
        from search.results.comparison import comparison_of
        from search.show.comparison_tables import as_csv, text_tables

        write_output(path, as_csv(comparison_of(search)), text_tables(comparison_of(search)))
    _print_result(search, as_json)


def _run_campaign(
    content: dict[str, Any], settings: list[str], runs: Path, output: list[Path], allow_failed: bool, as_json: bool
) -> None:
    """Run the campaign of the file ``content``, to which ``settings`` were applied, and print and write its result."""
    with phase(messages(), "Reading the campaign …"):
        from search.driver.campaigns import record_campaign
        from search.driver.finish import draw_report
        from search.driver.make_plan import read_campaign_plans
        from search.driver.pipeline import run_stages
        from search.driver.stages import Order
        from search.driver.synchronise import behind, try_to_write, where_to_look
        from search.results.campaign import campaign_family, campaign_result
        from search.show.campaigns import campaign_csv, campaign_tables, write_report

        campaign, plans = read_campaign_plans(content, runs)
        folder = records.CampaignFolder(runs, campaign.name)
        say(dict.fromkeys(notice for plan in plans for notice in plan.notices))
    order = Order(
        console=messages(),
        stages=plans[0].config.stages,
        started=STARTED,
        opener=campaign.name,
        family=campaign_family(campaign),
        on_begin=lambda: folder.begin(campaign.config),
        allow_failed=allow_failed,
    )
    searches = run_stages(plans, order)
    result = campaign_result(campaign, searches)
    changed = folder.end(result.model_dump(mode="json"))
    if changed or not folder.report.exists():
        draw_report(lambda: write_report(runs, [campaign.name]), campaign.name, messages())
    if changed and not try_to_write(lambda: record_campaign(plans, campaign, result, folder)):
        say([behind(campaign.name)])
    tables = campaign_tables(campaign.config, result, settings)
    for path in output:
        write_output(path, campaign_csv(result), tables)
    show(result.model_dump(mode="json"), as_json, lambda: Tables(tables))
    if not as_json:
        say([where_to_look(plans)])


def select(
    name: Name,
    allow_failed: AllowFailed = False,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Confirm the finalists with fresh seeds, and freeze one configuration per loss."""
    records.refuse_member(runs, name)
    with _opened(name, runs, trains=True) as search:
        if not search.is_done(Stage.SEARCH):
            raise InvalidInput(f"The search {name} has trials left; run its file with `holdout run` first.")
    _print_result(_run(search, Stage.SELECT, allow_failed=allow_failed), as_json)


def test(
    name: Name,
    again: Annotated[
        str | None, typer.Option("--again", metavar="REASON", help="Open the test classes once more, for this reason.")
    ] = None,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Train the chosen configurations and score them on the held-out classes, once."""
    from search.driver.finish import write_summary

    records.refuse_member(runs, name)
    with _opened(name, runs, trains=True) as search:
        if not search.is_done(Stage.SELECT):
            raise InvalidInput(f"No configuration of {name} is chosen yet; run `holdout select {name}` first.")
        if again is not None and not again.strip():
            raise InvalidInput("--again needs a reason; state in a sentence why the test classes are opened once more.")
        if search.stays_sealed and again is None:
            raise InvalidInput(f"{search.stays_sealed} `--again REASON` opens it.")
        if search.is_done(Stage.TEST) and again is None:
            write_summary(search)
            _print_result(search, as_json)
            raise InvalidInput(
                f"The test classes of {name} were already opened, and the result above is from that time. "
                "`--again REASON` opens them once more, and every later table shows it."
            )
    _print_result(_run(search, Stage.TEST, again), as_json)


def enqueue(
    name: Name,
    loss: Annotated[str, typer.Option("--loss", help="The loss of the trials.")],
    params: Annotated[
        list[str],
        typer.Option(
            "--params",
            metavar="JSON",
            help='The values of one trial, such as \'{"scale": 16, "training.lr": 1e-3}\'; may be repeated.',
        ),
    ],
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Propose trials for a search; its next run trains them first."""
    from search.config.yaml_file import parse_yaml
    from search.driver.start import enqueue as enqueue_trials

    proposals = [parse_yaml(text, "--params") for text in params]
    if wrong := [proposal for proposal in proposals if not isinstance(proposal, dict) or not proposal]:
        raise InvalidInput(f"--params must hold names and values, such as '{{scale: 16}}'; it is {wrong[0]!r:.60}.")
    result = enqueue_trials(name, runs, loss, proposals)
    numbers = ", ".join(str(trial["number"]) for trial in result["trials"])
    show(result, as_json, lambda: f"{loss}: trial {numbers} of {result['search_trials']} enqueued.")
    if not as_json:
        say([f"`holdout run` with the file of {name} trains {'it' if len(params) == 1 else 'them'}."], "dim")


def sync(
    names: Names,
    register: Annotated[
        bool, typer.Option("--register", help="Also register the chosen models; the recommended one is `champion`.")
    ] = False,
    model_name: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="With --register, the name of the registered model; by default the search's."
        ),
    ] = None,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Update MLflow from the studies of searches or campaigns, and print the address of the page that compares them."""
    from search.driver.finish import write_summary
    from search.driver.synchronise import make_projection, register as register_models, where_to_look

    names = list(dict.fromkeys(names))
    if model_name is not None and (not register or len(names) > 1 or not is_plain_name(model_name)):
        raise InvalidInput(
            f"--as is {model_name!r}; it names the models that --register registers for one search, and has letters, "
            "digits, '.', '_' and '-', beginning with a letter or digit."
        )
    synced: list[dict[str, Any]] = []
    plans = []
    for name in names:
        with ExitStack() as stack:
            folder = records.CampaignFolder(runs, name)
            begun = [member for member in folder.searches() if records.RunFolder(runs, member).config.exists()]
            searches = [stack.enter_context(_opened(search, runs)) for search in begun or [name]]
            for search in searches:
                write_summary(search)
            record: dict[str, Any] = {"name": name, "trials": _synchronise(folder, searches)}
            if register:
                record["registered"] = [
                    register_models(search, make_projection(search.plan), model_name or search.name)
                    for search in searches
                ]
        synced.append(record)
        plans += [search.plan for search in searches]
    if not as_json:
        servers = dict.fromkeys(plan.config.tracking.uri for plan in plans)
        say([where_to_look([plan for plan in plans if plan.config.tracking.uri == uri]) for uri in servers], "dim")
    show(synced, as_json, lambda: "\n".join(sentence for record in synced for sentence in _synced(record)))


def _synced(record: dict[str, Any]) -> Iterator[str]:
    what = "the only trial" if record["trials"] == 1 else f"all {record['trials']} trials"
    yield f"MLflow holds {what} of {record['name']}."
    for found in record.get("registered", ()):
        versions = ", ".join(f"{loss} is version {version}" for loss, version in found["versions"].items())
        yield f"models:/{found['name']}@champion is the model of {found['best']}. In {found['name']}, {versions}."


def _synchronise(folder: "records.CampaignFolder", searches: "Sequence[records.Records]") -> int:
    """Update MLflow from the searches, and from their campaign's result if ``folder`` has one; count the trials."""
    from search.driver.synchronise import make_projection, mlflow_errors, synchronise

    with mlflow_errors():
        count = sum(synchronise(search, make_projection(search.plan)) for search in searches)
    if folder.result.exists():
        from search.driver.campaigns import record_campaign, stored_campaign
        from search.results.campaign import campaign_result

        campaign = stored_campaign(folder)
        result = campaign_result(campaign, searches)
        with mlflow_errors():
            record_campaign([search.plan for search in searches], campaign, result, folder)
    return count


def _run(
    search: "records.Records", stage: Stage, reason: str | None = None, *, allow_failed: bool = False
) -> "records.Records":
    from search.driver.pipeline import run_stages
    from search.driver.stages import Order

    order = Order(
        console=messages(),
        stages=[stage],
        started=STARTED,
        opener=search.name,
        reason=reason,
        allow_failed=allow_failed,
    )
    (done,) = run_stages([search.plan], order)
    return done


@contextmanager
def _opened(name: str, runs: Path, *, trains: bool = False) -> "Iterator[records.WritableRecords]":
    """Open a stored search, and hold it exclusively meanwhile."""
    from search.driver.make_plan import reopened

    plan = reopened(runs, name, trains=trains)
    with plan.folder.only_driver(), closing(records.open_search(plan)) as search:
        yield search


def _print_result(search: "records.Records", as_json: bool) -> None:
    from search.results.comparison import comparison_of, summary_of
    from search.show.comparison_tables import headline_tables

    show(summary_of(search).with_digest(), as_json, lambda: Tables(headline_tables(comparison_of(search))))
    if not as_json:
        say(_what_is_there(search))


EXTREME_EPOCHS = {
    "first_epochs": (
        "the first ones: fewer epochs (--set training.epochs=…), or lower learning rates, may give the same or better"
    ),
    "last_epochs": "the last: longer trainings (training.epochs) may give more",
}
"""What a result says of best epochs, by the kind of the finding."""


def _what_is_there(search: "records.Records") -> Iterator[str]:
    """Yield where the report and the models are, and what the answer does not say."""
    from search.driver.synchronise import where_to_look
    from search.results.comparison import comparison_of
    from trainables.inference.model_files import DESCRIPTION

    folder, (summary,) = search.folder, comparison_of(search).searches
    if folder.report.exists():
        yield f"Report: {folder.report}"
    if (best := summary.recommended) and ((model := folder.model(best.loss)) / DESCRIPTION).exists():
        yield f"Model: {model}" if search.config.trainable else f'Model: holdout.load("{model}")'
    losses = summary.losses.items()
    for loss, entry in losses:
        yield from (f"{loss}: {found.sentence}." for found in entry.diagnostics if found.kind == "nothing_learned")
    for kind, text in EXTREME_EPOCHS.items():
        if names := [loss for loss, entry in losses if any(found.kind == kind for found in entry.diagnostics)]:
            yield f"The best epochs of {', '.join(names)} are {text}."
    if search.stays_sealed:
        yield search.stays_sealed
    if not summary.recommended:
        yield f"Next: `holdout select {search.name}` confirms the finalists and chooses"
    if folder.runs != RUNS:
        yield f"Commands on this search need --runs {folder.runs}"
    yield where_to_look([search.plan])
