"""The report of a campaign, and its figures."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from search.campaigns.cells import METRIC, ROLE, CampaignResult, Cell, in_unit, joined, unit
from search.campaigns.tables import cell_table, data_set_tables, other_tables, tournament_table
from search.config.campaign import LOSS, CampaignConfig, read_config
from search.plan.runs import CampaignFolder, RunFolder
from search.plan.stored import stored_search
from search.report.document import ReportPage, as_html, write_search_report
from search.report.drawing import (
    COLOURS,
    FAINT,
    INK,
    Figure,
    Section,
    colours_of,
    drawn,
    label_rows,
    legend_below,
    marks_of,
    pairs_finding,
)
from search.report.sections.answer import again
from search.report.sections.anytime_curves import anytime_curves
from search.report.sections.effort import effort
from search.report.sections.outcome import distinct_proxies
from search.report.statistics import Tournament
from search.report.summary import summary_so_far
from search.report.text_table import TextTable
from search.stages import Role
from trainables.errors import InvalidInput, counted
from trainables.files import reading, write_text


def campaign_report(folder: CampaignFolder) -> ReportPage:
    """Build the report of a campaign, finished or not.

    Raises:
        InvalidInput: its records cannot be read.
    """
    config = read_config(folder.content())
    begun = [name for name in folder.searches() if (folder.runs / name / "search.yaml").exists()]
    searches = [stored for name in begun if (stored := stored_search(folder.runs, name)).storage]
    summaries = [summary_so_far(search) for search in searches]
    curves = anytime_curves(searches, summaries) if searches else None
    figures = (curves,) if curves else ()
    if folder.result.exists():
        told = study(config, stored_result(folder))
        rows = [row for summary in summaries for row in summary.rows if row.role in config.table.roles]
        proxies = distinct_proxies([(f"{row.search}/{row.loss}, {row.role}", row) for row in rows])
        told = replace(told, figures=(*told.figures, *figures), remarks=(*told.remarks, *proxies))
    else:
        why = f"Results: there are none yet; {len(begun)} of {len(folder.searches())} searches have started."
        told = Section(name="study", title=config.study, figures=figures, pending=(why,))
    return ReportPage(
        title=config.name,
        subtitle=f"{config.study}: {len(folder.searches())} searches, tested together",
        sections=(told, effort(searches, summaries), again(searches, folder.config)),
    )


def study(config: CampaignConfig, result: CampaignResult) -> Section:
    """Return the section on a campaign's study: its tables, and the figures of its metrics and tournaments."""
    figures: list[Figure | None] = []
    data_sets = dict.fromkeys(joined(cell.coordinates, result.data_axes) for cell in result.cells)
    for metric, data_set in product(config.table.metrics, data_sets):
        cells = [
            cell
            for cell in result.cells
            if cell.coordinates[METRIC] == metric
            and cell.mean is not None
            and joined(cell.coordinates, result.data_axes) == data_set
        ]
        if cells:
            axes = [axis for axis in config.vary if axis not in result.data_axes]
            figures += [*(against_number(cells, axis, data_set) for axis in axes), bars(cells, data_set)]
    figures += [ranks(found, role, result.data_axes) for role, found in result.tournaments.items()]
    return Section(
        name="study",
        title=result.study,
        results=tuple(data_set_tables(config, result)),
        sentences=(pairs_finding(result.pairs),) if result.pairs else (),
        tables=tuple(table for table in other_tables(config, result) if table.rows),
        figures=tuple(figure for figure in figures if figure),
        missing=result.left_out,
    )


def stored_result(folder: CampaignFolder) -> CampaignResult:
    """Return the result of a campaign as it was written last.

    Raises:
        InvalidInput: there is none, or it is damaged.
    """
    if not folder.result.exists():
        raise InvalidInput(f"No campaign {folder.name!r} has a result in {folder.runs}; `holdout run` runs one.")
    with reading(folder.result, "`holdout run` with the campaign's file writes it again"):
        return CampaignResult.model_validate_json(folder.result.read_bytes())


def write_report(runs: Path, names: Sequence[str], file: Path | None = None) -> Path:
    """Write the report of one campaign, or of searches that share one split.

    Args:
        runs: the runs folder.
        names: the name of one campaign, or of one or more searches.
        file: the path to write; None: ``report.html`` in the folder of the first name.

    Raises:
        InvalidInput: a name does not exist, the searches cannot be compared, or their records cannot be read.
    """
    campaigns = [name for name in names if RunFolder(runs, name).is_campaign]
    if not campaigns:
        return write_search_report(runs, names, file)
    if len(names) > 1:
        raise InvalidInput(
            f"{campaigns[0]} is a campaign, which has a separate report; give one campaign, or only searches."
        )
    folder = CampaignFolder(runs, campaigns[0])
    file = file or folder.report
    write_text(file, as_html(campaign_report(folder)))
    return file


# Figures of the cells of one metric and one data set, all with values.


def _named(prefix: str, data_set: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", "-".join(filter(None, (prefix, data_set))))


def _axis_label(cell: Cell) -> str:
    return f"{cell.coordinates[METRIC]}{' in percent' * (unit(cell.measured) > 1)}"


def _numbers(cells: Sequence[Cell]) -> TextTable:
    rows = [key for key in cells[0].coordinates if key != METRIC]
    return cell_table([(cell.coordinates, cell) for cell in cells], rows, [METRIC])


def _names(cells: Sequence[Cell], axis: str | None = None) -> list[str]:
    """Return the name of each cell: its coordinates, except ``axis``, that have more than one label."""
    keys = [key for key in cells[0].coordinates if key != axis]
    shown = [key for key in keys if len({cell.coordinates[key] for cell in cells}) > 1]
    named = {key: "" if axis is None or key in (LOSS, ROLE) else f"{key} " for key in shown}
    return [" ".join(named[key] + cell.coordinates[key] for key in shown) for cell in cells]


_LABEL = re.compile(r"(?P<group>.*?)[-_ ]?(?P<number>\d+(?:\.\d+)?)")


def against_number(cells: Sequence[Cell], axis: str, data_set: str = "") -> Figure | None:
    """Plot mean and deviation along ``axis``, a line per loss and setting; None unless its labels are numbers.

    Labels such as ``alpha-1`` and ``alpha-2`` form a line ``alpha``. ``data_set`` names that of the cells if there are
    several.
    """
    lines: dict[str, dict[float, Cell]] = {}
    for cell, name in zip(cells, _names(cells, axis), strict=True):
        match = _LABEL.fullmatch(cell.coordinates[axis])
        if match is None:
            return None
        line = lines.setdefault(" ".join(filter(None, (name, match["group"]))) or axis, {})
        if float(match["number"]) in line:  # cells that no coordinate distinguishes
            return None
        line[float(match["number"])] = cell
    if all(len(line) < 3 for line in lines.values()):
        return None
    metric, scale = cells[0].coordinates[METRIC], unit(cells[0].measured)
    name, findings, shown = _named(f"{metric}-against-{axis}", data_set), [], []
    colours, marks = colours_of(list(lines)), marks_of(list(lines))
    with drawn(name, 280) as canvas:
        axes = canvas.axes
        for label, line in lines.items():
            numbers = sorted(line)
            shown += [line[number] for number in numbers]
            means = [scale * (line[number].mean or 0.0) for number in numbers]
            deviations = [scale * (line[number].std or 0.0) for number in numbers]
            colour, mark = colours[label], marks[label]
            axes.errorbar(
                numbers, means, yerr=deviations, label=label, color=colour, marker=mark, markersize=5, capsize=2
            )
            best = max(zip(means, numbers, strict=True))
            findings.append(
                f"{label}: {means[0]:.1f} at {numbers[0]:g}, {means[-1]:.1f} at {numbers[-1]:g}, "
                f"highest {best[0]:.1f} at {best[1]:g}."
            )
        ticks = sorted({number for line in lines.values() for number in line})
        if ticks[0] > 0 and ticks[-1] / ticks[0] > 20:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(ticks, [f"{number:g}" for number in ticks])
        axes.set_xlabel(axis, color=FAINT)
        axes.set_ylabel(_axis_label(cells[0]))
        axes.grid(axis="y")
        legend_below(axes, 2)
    return Figure(
        name=name,
        title=", ".join(filter(None, (f"{metric} against {axis}", data_set))),
        finding=" ".join(findings),
        picture=canvas.drawing,
        table=_numbers(shown),
    )


MOST = 40
"""Number of bars in the figure."""


def bars(cells: Sequence[Cell], data_set: str = "") -> Figure:
    """Draw each row's mean and deviation, tuned rows filled and others hatched.

    ``data_set`` names that of the cells if there are several. The figure has the :data:`MOST` highest rows, the table
    all of them.
    """
    metric, scale = cells[0].coordinates[METRIC], unit(cells[0].measured)
    by_mean = sorted(zip(cells, _names(cells), strict=True), key=lambda entry: entry[0].mean or 0.0, reverse=True)
    labels = [name or metric for _, name in by_mean[:MOST]]
    name = _named(f"bars-{metric}", data_set)
    with drawn(name, 70 + 17 * len(labels)) as canvas:
        for place, (cell, _) in enumerate(by_mean[:MOST]):
            tuned = cell.coordinates[ROLE] == Role.TUNED
            canvas.axes.barh(
                place,
                scale * (cell.mean or 0.0),
                height=0.65,
                xerr=None if cell.std is None else scale * cell.std,
                ecolor=INK,
                facecolor=COLOURS[0] if tuned else "none",
                edgecolor=COLOURS[0],
                hatch=None if tuned else "////",
            )
        legend = f"{_axis_label(cells[0])}; line: deviation over seeds; filled: tuned, hatched: others"
        label_rows(canvas.axes, labels, legend)
    best = by_mean[0][0]
    return Figure(
        name=name,
        title=", ".join(filter(None, (f"{metric}, all configurations", data_set))),
        finding=f"The mean {metric} is highest for {labels[0]}, {in_unit(best.measured, best.mean)}.",
        picture=canvas.drawing,
        table=_numbers(cells),
    )


# The tournament.


def ranks(tournament: Tournament, role: Role, data_axes: Sequence[str] = ()) -> Figure:
    """Draw each loss's ranks as ticks and their mean as a dot; the bar below is Nemenyi's critical difference.

    With ``data_axes`` the settings are data sets.
    """
    standings, table = tournament.standings, tournament_table(role, tournament, data_axes)
    name = f"ranks-{role.value}"
    with drawn(name, 80 + 22 * len(standings)) as canvas:
        axes = canvas.axes
        for place, standing in enumerate(standings):
            axes.plot(standing.ranks, [place] * len(standing.ranks), "|", color=FAINT, markersize=8)
            axes.plot(standing.mean, place, "o", color=COLOURS[0], markersize=7)
        if tournament.critical_difference is not None:
            left = min(standing.mean for standing in standings)
            right = left + tournament.critical_difference
            axes.plot([left, right], [len(standings)] * 2, color=COLOURS[1], linewidth=3)
            axes.annotate("critical difference", (right, len(standings)), xytext=(4, -3), textcoords="offset points")
        settings = counted(tournament.settings, "data set" if data_axes else "setting")
        label_rows(axes, [standing.loss for standing in standings], f"rank in each of {settings} (1 is best)")
    best = f"{standings[0].loss} has the best mean rank, {standings[0].mean:.2f} of {len(standings)}"
    return Figure(
        name=name,
        title=table.title,
        finding=f"{best}; {table.notes[0]}.",
        picture=canvas.drawing,
        table=table,
    )
