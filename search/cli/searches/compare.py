"""``holdout compare``: searches of one split beside each other."""

from search.cli.options import RUNS, Json, Names, Output, Runs
from search.cli.output import rendered, show


def compare(names: Names, output: Output = None, runs: Runs = RUNS, as_json: Json = False) -> None:
    """The losses of searches beside each other, and which of them differ."""
    from search.plan.runs import existing_run
    from search.report.comparison import compare as compare_searches
    from search.report.results.summary import stored_summary
    from search.report.tables.csv_records import as_csv
    from search.report.tables.output import refuse_unknown, write_output
    from search.report.tables.text_tables import text_tables

    refuse_unknown(output or [])
    folders = [existing_run(runs, name) for name in dict.fromkeys(names)]
    comparison = compare_searches(folders, [stored_summary(folder) for folder in folders])
    tables = text_tables(comparison)
    for path in output or []:
        write_output(path, as_csv(comparison), tables)
    show("" if as_json else rendered(tables), comparison.model_dump(mode="json"), as_json)
