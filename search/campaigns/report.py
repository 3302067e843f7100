"""The report of a campaign, and its figures."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

from search.campaigns.cells import (
    METRIC,
    ROLE,
    CampaignResult,
    Cell,
    by_data_set,
    cell_text,
    in_unit,
    interval_in_unit,
    unit,
)
from search.campaigns.tables import DIFFERENCES, difference, folds_table, over_data_sets, quoted_tables
from search.config.campaign import LOSS, CampaignConfig, read_config
from search.plan.runs import CampaignFolder, RunFolder
from search.plan.stored import stored_search
from search.report.document import Report, as_html, write_search_report
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
from search.report.formats import NO_DIFFERENCE, RANKS, RANKS_BESIDE, ranks_beside, sentence
from search.report.sections.answer import again
from search.report.sections.anytime_curves import anytime_curves
from search.report.sections.effort import effort
from search.report.sections.outcome import distinct_proxies
from search.report.statistics import LEVEL, Tournament
from search.report.summary import summary_so_far
from search.report.text_table import TextTable
from search.stages import Role
from trainables.files import reading, write_text
from trainables.mistakes import Mistakes, counted


def study(config: CampaignConfig, result: CampaignResult) -> Section:
    """Return the section on a campaign's study: its metrics, tournaments, trends and differences."""
    figures: list[Figure | None] = []
    for metric, (data_set, cells) in product(config.table.metrics, by_data_set(result.data_axes, result.cells).items()):
        figures += [
            against_number(cells, axis, metric, data_set) for axis in config.vary if axis not in result.data_axes
        ]
        figures.append(bars(cells, metric, data_set))
    figures += [
        ranks(found, role, result.published_tournaments.get(role), result.data_axes)
        for role, found in result.tournaments.items()
    ]
    spent = result.epochs
    return Section(
        name="study",
        title=result.study,
        results=(_cells(result),),
        sentences=(pairs_finding(result.pairs),) if result.pairs else (),
        remarks=(
            *_trends(result),
            *map(sentence, result.openings.values()),
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


def _cells(result: CampaignResult) -> TextTable:
    """Return a row per configuration of the campaign and a column per metric, with the paper's numbers in brackets."""
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in result.cells:
        place = tuple(value for key, value in cell.coordinates.items() if key != METRIC)
        rows.setdefault(place, {})[cell.coordinates[METRIC]] = cell
    names = [key for key in result.cells[0].coordinates if key != METRIC]
    metrics = list(dict.fromkeys(cell.coordinates[METRIC] for cell in result.cells))
    return TextTable(
        title="Mean and deviation over seeds",
        header=(*names, *metrics),
        rows=tuple((*place, *(cell_text(found.get(metric)) for metric in metrics)) for place, found in rows.items()),
        labels=len(names),
    )


def _trends(result: CampaignResult) -> list[str]:
    sentences = []
    for trend in result.trends:
        word = NO_DIFFERENCE if not trend.differ else "rises" if trend.change > 0 else "falls"
        sentences.append(
            f"{' '.join(trend.coordinates.values())}: along {trend.axis} from {trend.labels[0]} to "
            f"{trend.labels[-1]} {trend.metric} changes by "
            f"{in_unit(trend.metric, trend.change, '+')} "
            f"{interval_in_unit(trend.metric, trend.ci95)}: {word}."
        )
    return sentences


def _differences(result: CampaignResult) -> TextTable:
    return TextTable(
        title="Differences on the test classes",
        header=DIFFERENCES,
        rows=tuple(difference(pair) for pair in sorted(result.pairs, key=lambda pair: pair.p_corrected)),
        labels=1,
    )


def campaign_report(folder: CampaignFolder) -> Report:
    """Build the report of a campaign, finished or not.

    Raises:
        Mistakes: its records cannot be read.
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
    return Report(
        title=config.name,
        subtitle=f"{config.study}: {len(folder.searches())} searches, tested together",
        sections=(told, effort(searches, summaries), again(searches, folder.config)),
    )


def stored_result(folder: CampaignFolder) -> CampaignResult:
    """Return the result of a campaign as it was written last.

    Raises:
        Mistakes: there is none, or it is damaged.
    """
    if not folder.result.exists():
        raise Mistakes(f"No campaign {folder.name!r} has a result in {folder.runs}; `holdout campaign` runs one.")
    with reading(folder.result, "`holdout campaign` with the campaign's file writes it again"):
        return CampaignResult.model_validate_json(folder.result.read_bytes())


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


def cell_table(cells: Sequence[Cell]) -> TextTable:
    """Return a row per cell: coordinates, mean and deviation, seeds, and the published number."""
    keys = list(cells[0].coordinates) if cells else []
    return TextTable(
        title="",
        header=(*keys, "mean", "deviation", "seeds", "published"),
        rows=tuple(
            (
                *(cell.coordinates[key] for key in keys),
                *(in_unit(cell.measured, value) for value in (cell.mean, cell.std)),
                str(cell.seeds),
                in_unit(cell.measured, cell.published),
            )
            for cell in cells
        ),
        labels=len(keys),
    )


_LABEL = re.compile(r"(?P<group>.*?)[-_ ]?(?P<number>\d+(?:\.\d+)?)")


Lines = dict[str, list[tuple[float, Cell]]]
"""Cells with their numbers by line, sorted by number."""


def against_number(cells: Sequence[Cell], axis: str, metric: str, data_set: str = "") -> Figure | None:
    """Plot mean and deviation of ``metric`` along ``axis``, a line per loss and setting, published values hollow.

    Labels such as ``alpha-1`` and ``alpha-2`` form a line ``alpha``. ``data_set`` names that of the cells if there are
    several. Returns None unless the labels are numbers.
    """
    measured = [cell for cell in cells if cell.coordinates[METRIC] == metric and cell.mean is not None]
    lines = _lines(measured, axis)
    if not lines:
        return None
    scale, name = unit(measured[0].measured), "-".join(filter(None, (f"{metric}-against-{axis}", data_set)))
    colours, marks = colours_of(list(lines)), marks_of(list(lines))
    with drawn(name, 280) as canvas:
        axes = canvas.axes
        for line, points in lines.items():
            numbers = [number for number, _ in points]
            means = [scale * (cell.mean or 0.0) for _, cell in points]
            deviations = [scale * (cell.std or 0.0) for _, cell in points]
            colour, mark = colours[line], marks[line]
            axes.errorbar(
                numbers, means, yerr=deviations, label=line, color=colour, marker=mark, markersize=5, capsize=2
            )
            published = [(number, scale * cell.published) for number, cell in points if cell.published is not None]
            if published:
                xs, ys = zip(*published, strict=True)
                axes.plot(xs, ys, ":", label=f"{line}, published", color=colour, marker=mark, markerfacecolor="none")
        numbers = sorted({number for points in lines.values() for number, _ in points})
        if numbers[0] > 0 and numbers[-1] / numbers[0] > 20:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
        axes.set_xlabel(axis, color=FAINT)
        axes.set_ylabel(f"{metric}{' in percent' if scale > 1 else ''}")
        axes.grid(axis="y")
        legend_below(axes, 2)
    return Figure(
        name=_plain(name),
        title=", ".join(filter(None, (f"{metric} against {axis}", data_set))),
        finding=" ".join(_line_finding(line, points, scale) for line, points in lines.items()),
        picture=canvas.drawing,
        table=cell_table([cell for points in lines.values() for _, cell in points]),
    )


def _lines(cells: Sequence[Cell], axis: str) -> Lines:
    """Return the cells along ``axis`` by line; empty if a label is not a number or no line has three cells."""
    found: Lines = {}
    names = _names(cells, axis)
    for cell, name in zip(cells, names, strict=True):
        match = _LABEL.fullmatch(cell.coordinates[axis])
        if match is None:
            return {}
        line = " ".join(filter(None, (name, match["group"])))
        found.setdefault(line or axis, []).append((float(match["number"]), cell))
    for points in found.values():
        points.sort(key=lambda point: point[0])
        if any(first == second for (first, _), (second, _) in pairwise(points)):
            return {}  # cells that no coordinate distinguishes
    return found if any(len(points) > 2 for points in found.values()) else {}


def _names(cells: Sequence[Cell], axis: str) -> Iterator[str]:
    """Yield the line of each cell: its coordinates, except ``axis``, that have more than one label."""
    others = [key for key in (cells[0].coordinates if cells else ()) if key not in (axis, METRIC)]
    shown = [key for key in others if len({cell.coordinates[key] for cell in cells}) > 1]
    for cell in cells:
        yield " ".join(_label(key, cell.coordinates) for key in shown)


def _label(key: str, coordinates: Mapping[str, str]) -> str:
    return coordinates[key] if key in (LOSS, ROLE) else f"{key} {coordinates[key]}"


def _line_finding(line: str, points: Sequence[tuple[float, Cell]], scale: float) -> str:
    best, cell = max(points, key=lambda point: point[1].mean or 0.0)
    first, last = points[0], points[-1]
    return (
        f"{line}: {scale * (first[1].mean or 0.0):.1f} at {first[0]:g}, {scale * (last[1].mean or 0.0):.1f} at "
        f"{last[0]:g}, highest {scale * (cell.mean or 0.0):.1f} at {best:g}."
    )


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", name)


MOST = 40
"""Number of bars in the figure."""


def bars(cells: Sequence[Cell], metric: str, data_set: str = "") -> Figure | None:
    """Draw each row's mean and deviation, tuned rows filled and defaults hatched; diamonds are published numbers.

    ``data_set`` names that of the cells if there are several. The figure has the :data:`MOST` highest rows, the table
    all of them. Returns None without a value.
    """
    measured = [cell for cell in cells if cell.coordinates[METRIC] == metric and cell.mean is not None]
    if not measured:
        return None
    scale, name = unit(measured[0].measured), "-".join(filter(None, (f"bars-{metric}", data_set)))
    keys = [
        key
        for key in measured[0].coordinates
        if key != METRIC and len({cell.coordinates[key] for cell in measured}) > 1
    ]
    shown = sorted(measured, key=lambda cell: cell.mean or 0.0, reverse=True)[:MOST]
    labels = [" ".join(cell.coordinates[key] for key in keys) or metric for cell in shown]
    with drawn(name, 70 + 17 * len(shown)) as canvas:
        axes = canvas.axes
        for place, cell in enumerate(shown):
            tuned = cell.coordinates[ROLE] == Role.TUNED
            axes.barh(
                place,
                scale * (cell.mean or 0.0),
                height=0.65,
                xerr=None if cell.std is None else scale * cell.std,
                ecolor=INK,
                facecolor=COLOURS[0] if tuned else "none",
                edgecolor=COLOURS[0],
                hatch=None if tuned else "////",
            )
            if cell.published is not None:
                axes.plot(scale * cell.published, place, "D", color=COLOURS[1], markersize=5)
        label_rows(axes, labels, _legend(shown, metric, scale))
    best = shown[0]
    return Figure(
        name=_plain(name),
        title=", ".join(filter(None, (f"{metric}, all configurations", data_set))),
        finding=_finding(labels[0], best, measured, metric),
        picture=canvas.drawing,
        table=cell_table(measured),
    )


def _legend(shown: Sequence[Cell], metric: str, scale: float) -> str:
    roles = {cell.coordinates[ROLE] for cell in shown}
    parts = [f"{metric}{' in percent' if scale > 1 else ''}", "line: deviation over seeds"]
    if len(roles) > 1:
        others = "default or without training" if Role.BASELINE in roles else "default"
        parts.append(f"filled: tuned, hatched: {others}")
    if any(cell.published is not None for cell in shown):
        parts.append("diamond: published")
    return "; ".join(parts)


def _finding(label: str, best: Cell, measured: Sequence[Cell], metric: str) -> str:
    text = f"The mean {metric} is highest for {label}, {in_unit(best.measured, best.mean or 0.0)}."
    both = [(cell.mean, cell.published) for cell in measured if cell.mean is not None and cell.published is not None]
    if both:
        gap = in_unit(best.measured, sum(mean - published for mean, published in both) / len(both), "+")
        text += f" Mean difference from the published values ({counted(len(both), 'value')}): {gap}."
    return text


def ranks(tournament: Tournament, role: Role, published: Tournament | None, data_axes: Sequence[str] = ()) -> Figure:
    """Draw each loss's ranks as ticks and their mean as a dot; the bar below is Nemenyi's critical difference.

    Diamonds are the mean ranks of the ``published`` numbers. With ``data_axes`` the settings are data sets.
    """
    standings = tournament.standings
    printed = {standing.loss: standing for standing in published.standings} if published else {}
    name = f"ranks-{role.value}"
    with drawn(name, 80 + 22 * len(standings)) as canvas:
        axes = canvas.axes
        for place, standing in enumerate(standings):
            axes.plot(standing.ranks, [place] * len(standing.ranks), "|", color=FAINT, markersize=8)
            axes.plot(standing.mean, place, "o", color=COLOURS[0], markersize=7)
            if standing.loss in printed:
                axes.plot(printed[standing.loss].mean, place, "D", color=COLOURS[1], markersize=5)
        if tournament.critical_difference is not None:
            left = min(standing.mean for standing in standings)
            right = left + tournament.critical_difference
            axes.plot([left, right], [len(standings)] * 2, color=COLOURS[1], linewidth=3)
            axes.annotate("critical difference", (right, len(standings)), xytext=(4, -3), textcoords="offset points")
        legend = "; diamond: published" if printed else ""
        setting = "data set" if data_axes else "setting"
        xlabel = f"rank in each of {counted(tournament.settings, setting)} (1 is best){legend}"
        label_rows(axes, [standing.loss for standing in standings], xlabel)
    return Figure(
        name=name,
        title=f"Tournament{over_data_sets(tournament, data_axes)}, {role.value}",
        finding=_ranks_finding(tournament),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("loss", *RANKS),
            rows=tuple((standing.loss, *ranks_beside(standing, printed.get(standing.loss))) for standing in standings),
            labels=1,
            notes=(RANKS_BESIDE,) if printed else (),
        ),
    )


def _ranks_finding(tournament: Tournament) -> str:
    first = tournament.standings[0]
    best = f"{first.loss} has the best mean rank, {first.mean:.2f} of {len(tournament.standings)}"
    if tournament.p is None:
        return f"{best}; too few settings for a test ({tournament.settings})."
    if tournament.p > LEVEL:
        return f"{best}, but the ranks do not differ significantly (Friedman's p = {tournament.p:.3f})."
    return f"{best}; the ranks differ significantly (Friedman's p = {tournament.p:.3f})."
