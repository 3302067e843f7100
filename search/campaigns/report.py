"""The report of a campaign."""

from collections.abc import Sequence
from pathlib import Path

from search.campaigns.cells import CampaignResult, unit
from search.campaigns.figures import against_number, bars, ranks
from search.campaigns.tables import folds_table, quoted_tables
from search.config.campaign import CampaignConfig, read_config
from search.config.yaml_file import read_yaml
from search.plan.runs import CampaignFolder, RunFolder
from search.plan.stored import stored_search
from search.report.document import Report, as_html, write_search_report
from search.report.drawing import Figure, Section, pairs_finding
from search.report.formats import NO_DIFFERENCE, verdict
from search.report.sections.answer import again
from search.report.sections.effort import effort
from search.report.summary import summary_so_far
from search.report.text_table import TextTable
from trainables.files import reading, write_text
from trainables.mistakes import Mistakes


def study(config: CampaignConfig, result: CampaignResult) -> Section:
    """Return the section on a campaign's study: its metrics, tournaments, trends and differences."""
    figures: list[Figure | None] = []
    for metric in config.table.metrics:
        figures += [against_number(result.cells, axis, metric) for axis in config.vary]
        figures.append(bars(result.cells, metric))
    figures += [
        ranks(found, role, result.published_tournaments.get(role)) for role, found in result.tournaments.items()
    ]
    spent = result.epochs
    return Section(
        name="study",
        title=result.study,
        sentences=(
            *_trends(result),
            *([pairs_finding(result.pairs)] if result.pairs else []),
            *(f"{told[0].upper()}{told[1:]}." for told in result.openings.values()),
            *result.warnings,
            f"Epochs: {spent.search:,} search, {spent.confirm:,} confirmation, {spent.final:,} final trainings.",
            *(f"Published, {told}." for published in config.published for told in published.notes),
        ),
        tables=(
            *((folds_table(result.folds),) if result.folds else ()),
            *quoted_tables(config),
            *((_differences(result),) if result.pairs else ()),
        ),
        figures=tuple(figure for figure in figures if figure),
        missing=result.left_out,
    )


def _trends(result: CampaignResult) -> list[str]:
    sentences = []
    for trend in result.trends:
        scale = unit(trend.metric)
        low, high = (scale * end for end in trend.ci95)
        word = NO_DIFFERENCE if not trend.differ else "rises" if trend.change > 0 else "falls"
        sentences.append(
            f"{' '.join(trend.coordinates.values())}: along {trend.axis} from {trend.labels[0]} to "
            f"{trend.labels[-1]} {trend.metric} changes by {scale * trend.change:+.2f} [{low:.2f}, {high:.2f}]: {word}."
        )
    return sentences


def _differences(result: CampaignResult) -> TextTable:
    return TextTable(
        title="Differences on the test classes",
        header=("pair", "difference", "95 % interval", "p (Holm)", ""),
        rows=tuple(
            (
                " − ".join(pair.names),
                f"{unit(pair.metric) * pair.difference:+.2f}",
                "[{:.2f}, {:.2f}]".format(*(unit(pair.metric) * end for end in pair.ci95)),
                f"{pair.p_holm:.4f}",
                verdict(pair),
            )
            for pair in sorted(result.pairs, key=lambda pair: pair.p_holm)
        ),
        labels=1,
    )


def campaign_report(folder: CampaignFolder) -> Report:
    """Build the report of a campaign, finished or not.

    Raises:
        Mistakes: its records cannot be read.
    """
    config = read_config(read_yaml(folder.config))
    begun = [name for name in folder.searches() if (folder.runs / name / "search.yaml").exists()]
    searches = [stored for name in begun if (stored := stored_search(folder.runs, name)).storage]
    summaries = [summary_so_far(search) for search in searches]
    if folder.result.exists():
        with reading(folder.result, "`holdout campaign` with the campaign's file writes it again"):
            result = CampaignResult.model_validate_json(folder.result.read_bytes())
        told = study(config, result)
    else:
        why = f"Results: there are none yet; {len(begun)} of {len(folder.searches())} searches have started."
        told = Section(name="study", title=config.study, missing=(why,))
    return Report(
        title=config.name,
        subtitle=f"{config.study}: {len(folder.searches())} searches, tested together",
        sections=(told, effort(searches, summaries), again(searches, folder.config)),
    )


def write_report(runs: Path, names: Sequence[str], file: Path | None = None) -> Path:
    """Write the report of one campaign, or of searches that share one split.

    Args:
        runs: the runs folder.
        names: the name of one campaign, or of one or more searches.
        file: the path to write; None: ``report.html`` in the folder of the first name.

    Raises:
        Mistakes: a name does not exist, the searches cannot be compared, or their records cannot be read.
    """
    campaigns = [name for name in names if RunFolder(runs, name).is_campaign]
    if not campaigns:
        return write_search_report(runs, names, file)
    if len(names) > 1:
        raise Mistakes(
            f"{campaigns[0]} is a campaign, which has a separate report; give one campaign, or only searches."
        )
    folder = CampaignFolder(runs, campaigns[0])
    file = file or folder.report
    write_text(file, as_html(campaign_report(folder)))
    return file
