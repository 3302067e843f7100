"""The report of a campaign, and its figures."""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from search.campaigns.tables import (
    METRIC,
    ROLE,
    CampaignResult,
    Cell,
    cell_table,
    data_set_tables,
    joined,
    other_tables,
    unit,
)
from search.config.campaign import LOSS, CampaignConfig, read_config
from search.plan.records import stored_search
from search.plan.runs import CampaignFolder, RunFolder
from search.report.document import ReportPage, as_html, campaign_page, write_search_report
from search.report.drawing import Figure, Section, looks_of, plotted, rounded, scatter
from trainables.errors import InvalidInput
from trainables.files import reading, write_text


def campaign_report(folder: CampaignFolder) -> ReportPage:
    """Build the report of a campaign, finished or not."""
    config = read_config(folder.content())
    begun = [name for name in folder.searches() if (folder.runs / name / "search.yaml").exists()]
    searches = [stored for name in begun if (stored := stored_search(folder.runs, name)).folder.journal.exists()]
    if folder.result.exists():
        first = study(config, stored_result(folder))
    else:
        why = f"Results: there are none yet; {len(begun)} of {len(folder.searches())} searches have started."
        first = Section(name="study", title=config.study, pending=(why,))
    subtitle = f"{config.study}: {len(folder.searches())} searches, tested together"
    return campaign_page(config.name, subtitle, first, searches, folder.config)


def study(config: CampaignConfig, result: CampaignResult) -> Section:
    """Return the section on a campaign's study: its tables, and its metrics along its axes of numbers."""
    return Section(
        name="study",
        title=result.study,
        results=tuple(data_set_tables(config, result)),
        tables=tuple(table for table in other_tables(config, result) if table.rows),
        figures=tuple(_against_numbers(config, result)),
        missing=result.left_out,
    )


def _against_numbers(config: CampaignConfig, result: CampaignResult) -> Iterator[Figure]:
    data_sets = dict.fromkeys(joined(cell.coordinates, result.data_axes) for cell in result.cells)
    axes = [axis for axis in config.vary if axis not in result.data_axes]
    for metric, data_set, axis in product(config.table.metrics, data_sets, axes):
        cells = [
            cell
            for cell in result.cells
            if cell.coordinates[METRIC] == metric
            and cell.mean is not None
            and joined(cell.coordinates, result.data_axes) == data_set
        ]
        if cells and (figure := against_number(cells, axis, data_set)):
            yield figure


def stored_result(folder: CampaignFolder) -> CampaignResult:
    """Return the result of a campaign as it was written last."""
    if not folder.result.exists():
        raise InvalidInput(f"No campaign {folder.name!r} has a result in {folder.runs}; `holdout run` runs one.")
    with reading(folder.result, "`holdout run` with the campaign's file writes it again"):
        return CampaignResult.model_validate_json(folder.result.read_bytes())


def write_report(runs: Path, names: Sequence[str], file: Path | None = None) -> Path:
    """Write the report of one campaign, or of searches that share one split.

    The ``file`` is by default ``report.html`` in the folder of the first name.
    """
    campaigns = [name for name in names if RunFolder(runs, name).is_campaign]
    if not campaigns:
        return write_search_report([stored_search(runs, name) for name in names], file)
    if len(names) > 1:
        raise InvalidInput(
            f"{campaigns[0]} is a campaign, which has a separate report; give one campaign, or only searches."
        )
    folder = CampaignFolder(runs, campaigns[0])
    file = file or folder.report
    write_text(file, as_html(campaign_report(folder)))
    return file


# Figures of the cells of one metric and one data set, all with values.


def _names(cells: Sequence[Cell], axis: str) -> list[str]:
    """Return the name of each cell: its coordinates, except ``axis``, that have more than one label."""
    shown = [key for key in cells[0].coordinates if key != axis and len({cell.coordinates[key] for cell in cells}) > 1]
    named = {key: "" if key in (LOSS, ROLE) else f"{key} " for key in shown}
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
    looks, traces, findings, shown = looks_of(list(lines)), [], [], []
    for label, line in lines.items():
        numbers, (colour, mark) = sorted(line), looks[label]
        shown += [line[number] for number in numbers]
        means = [scale * (line[number].mean or 0.0) for number in numbers]
        deviations = [scale * (line[number].std or 0.0) for number in numbers]
        traces.append(
            scatter(
                label,
                "lines+markers",
                numbers,
                list(map(rounded, means)),
                line={"color": colour, "width": 1.5},
                marker={"symbol": mark, "size": 7},
                error_y={"type": "data", "array": list(map(rounded, deviations)), "thickness": 1, "width": 3},
            )
        )
        best = max(zip(means, numbers, strict=True))
        findings.append(
            f"{label}: {means[0]:.1f} at {numbers[0]:g}, {means[-1]:.1f} at {numbers[-1]:g}, "
            f"highest {best[0]:.1f} at {best[1]:g}."
        )
    ticks = sorted({number for line in lines.values() for number in line})
    is_log = ticks[0] > 0 and ticks[-1] / ticks[0] > 20
    rows = [key for key in cells[0].coordinates if key != METRIC]
    return Figure(
        name=re.sub(r"[^A-Za-z0-9-]+", "-", "-".join(filter(None, (f"{metric}-against-{axis}", data_set)))),
        title=", ".join(filter(None, (f"{metric} against {axis}", data_set))),
        finding=" ".join(findings),
        picture=plotted(
            traces,
            {
                "xaxis": {"title": {"text": axis}, "type": "log" if is_log else "linear", "tickvals": ticks},
                "yaxis": {"title": {"text": f"{metric}{' in percent' * (scale > 1)}"}},
            },
        ),
        table=cell_table([(cell.coordinates, cell) for cell in shown], rows, [METRIC]),
    )
