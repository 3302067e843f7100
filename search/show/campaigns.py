"""Campaigns as tables of text, CSV, and a report with figures."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from search.difference import RowKey
from search.records.campaign import LOSS, VALIDATION, CampaignConfig
from search.records.records import stored_search
from search.records.runs import CampaignFolder, RunFolder
from search.results.campaign import METRIC, ROLE, CampaignResult, Cell, columns_of, joined, row_axes, stored_result
from search.results.comparison import summary_of
from search.results.pairs import METHOD
from search.results.rows import parameters, spread_text
from search.show.comparison_tables import differences_table, units_note
from search.show.document import ReportPage, as_html, write_search_report
from search.show.drawing import Figure, Section, axis_title, looks_of, plotted, rounded, scatter
from search.show.sections.answer import again, anytime_curves
from search.stages import Role
from search.text_table import NOTHING, TextTable
from trainables.common.errors import InvalidInput
from trainables.common.files import write_text
from trainables.metrics import unit


def campaign_csv(result: CampaignResult) -> str:
    """Return one cell per line, as measured: bounded metrics from 0 to 1."""
    return str(result.to_frame().to_csv(index=False, lineterminator="\n"))


def campaign_tables(config: CampaignConfig, result: CampaignResult, settings: Sequence[str] = ()) -> list[TextTable]:
    """Return all tables; ``settings`` are those of the command line."""
    return [*data_set_tables(config, result, settings), *other_tables(config, result)]


def other_tables(config: CampaignConfig, result: CampaignResult) -> Iterator[TextTable]:
    """Yield the tables of the choices, folds and differences, as far as there are any."""
    if Role.TUNED in config.table.roles:
        yield TextTable(
            title="Chosen",
            header=("search", LOSS, "hyperparameters"),
            rows=tuple(
                (search, loss, parameters(params))
                for search, losses in result.chosen.items()
                for loss, params in losses.items()
            ),
            labels=2,
            prose=(2,),
        )
    if result.folds:
        yield _folds(config, result.folds)
    if result.pairs or result.left_out:
        yield _differences(config, result)


def data_set_tables(config: CampaignConfig, result: CampaignResult, settings: Sequence[str] = ()) -> list[TextTable]:
    """Return the cells as one table per data set, the notes below the last; one table if each row is a data set."""
    rows = row_axes(config, result.data_axes)
    apart = [axis for axis in result.data_axes if axis not in rows]
    by_data: dict[str, list[Cell]] = {}
    for cell in result.cells:
        by_data.setdefault(joined(cell.coordinates, apart), []).append(cell)
    notes = list(_notes(config, result, settings))
    title, last = f"{result.name}: {result.study}", [*by_data][-1]
    return [
        campaign_table(
            config, result.data_axes, cells, ", ".join(filter(None, (title, name))), notes if name == last else ()
        )
        for name, cells in by_data.items()
    ]


def campaign_table(
    config: CampaignConfig, data: Sequence[str], cells: Sequence[Cell], title: str, notes: Sequence[str]
) -> TextTable:
    """Return ``cells`` in rows and columns; the axes ``data`` are those of data sets.

    A network without training has no configuration; its number is in the column of each.
    """
    rows, roles = row_axes(config, data), [role.value for role in config.table.roles]
    shown = [
        cell.model_copy(update={"coordinates": {**cell.coordinates, ROLE: role}})
        for cell in cells
        for role in (roles if cell.coordinates[ROLE] == Role.BASELINE else [cell.coordinates[ROLE]])
    ]
    columns = columns_of(config, [cell.coordinates for cell in shown], rows) or [METRIC]
    rest = [key for key in shown[0].coordinates if key not in (*rows, *columns)]
    others = {key: {cell.coordinates[key] for cell in shown} for key in rest}
    same = ", ".join(f"{key} {labels.pop()}" for key, labels in others.items() if len(labels) == 1)
    return cell_table(shown, rows, columns, title, [*([same] if same else []), *notes])


def cell_table(
    cells: Sequence[Cell], rows: Sequence[str], columns: Sequence[str], title: str = "", notes: Sequence[str] = ()
) -> TextTable:
    import pandas

    frame = pandas.DataFrame([cell.coordinates for cell in cells], columns=[*rows, *columns])
    for key in frame:  # labels stay in the order of the file
        frame[key] = pandas.Categorical(frame[key], frame[key].unique())
    frame["cell"] = [*cells]
    wide = frame.pivot(index=[*rows], columns=[*columns], values="cell")
    down, across = (list(axis.to_frame().itertuples(index=False, name=None)) for axis in (wide.index, wide.columns))
    texts = [
        [spread_text(cell.measured, cell.mean, cell.std) if isinstance(cell, Cell) else NOTHING for cell in row]
        for row in wide.to_numpy()
    ]
    return TextTable(
        title=title,
        header=(*rows, *map("\n".join, across)),
        rows=tuple((*names, *of_row) for names, of_row in zip(down, texts, strict=True)),
        labels=len(rows),
        notes=tuple(notes),
    )


def _notes(config: CampaignConfig, result: CampaignResult, settings: Sequence[str]) -> Iterator[str]:
    of_column = {cell.coordinates[METRIC]: cell.measured for cell in result.cells}
    folds = " and folds" if result.folds else ""
    yield f"{units_note(of_column.values())}mean ± sample deviation over training seeds{folds}"
    if VALIDATION in of_column:
        yield (
            f"{VALIDATION}: {of_column[VALIDATION]} of the confirmation: fresh seeds on the validation classes or, "
            "where these are few, on two halves of the training classes"
        )
    if settings:
        yield f"set: {', '.join(settings)}"
    spent = result.epochs
    yield f"epochs: {spent['search']:,} searching, {spent['confirm']:,} confirming, {spent['final']:,} for the test"
    yield from result.openings.values()
    yield from result.warnings


def row_name(config: CampaignConfig, result: CampaignResult, key: RowKey) -> str:
    """Return the name of a row: its loss and its labels, as far as the campaign has several."""
    losses = {cell.coordinates[LOSS] for cell in result.cells if cell.coordinates[ROLE] != Role.BASELINE}
    labels = [result.searches[key.search][axis] for axis, labels in config.vary.items() if len(labels) > 1]
    return " ".join([key.loss, *labels] if losses != {key.loss} or not labels else labels)


def _folds(config: CampaignConfig, folds: Sequence[Cell]) -> TextTable:
    """Return a table with a row per fold: its best value on its validation classes, and the model's test metrics."""
    objectives = dict.fromkeys(cell.measured for cell in folds if cell.coordinates[METRIC] == VALIDATION)
    note = f"{VALIDATION}: {' or '.join(objectives)} of the best epoch on the classes that the fold leaves out"
    several = [key for key in (*config.vary, ROLE, "training") if len({cell.coordinates[key] for cell in folds}) > 1]
    return cell_table(folds, [LOSS, *several, "fold"], [METRIC], "Folds", [note])


MANY = 20
"""With more pairs, only those that differ are shown."""


def _differences(config: CampaignConfig, result: CampaignResult) -> TextTable:
    pairs = result.pairs
    notes = [*result.left_out]
    if pairs:
        count = f"{sum(pair.differ for pair in pairs)} of {len(pairs)}"
        paired = "all pairs of rows of a column, and each row with the untrained network of its search if there is one"
        method = f"{paired}; {METHOD} the pairs of one test set"
        notes.insert(0, f"significant differences of {pairs[0].metric}: {count} pairs; {method}")
    return differences_table(
        [pair for pair in pairs if len(pairs) <= MANY or pair.differ or pair.same],
        lambda pair: " − ".join(row_name(config, result, key) for key in (pair.first, pair.second)),
        "corrected",
        notes,
    )


def campaign_report(folder: CampaignFolder) -> ReportPage:
    """Build the report of a campaign, finished or not."""
    config = folder.stored()
    begun = [name for name in folder.searches() if (folder.runs / name / "search.yaml").exists()]
    searches = [stored for name in begun if (stored := stored_search(folder.runs, name)).folder.journal.exists()]
    if folder.result.exists():
        first = study(config, stored_result(folder))
    else:
        why = f"Results: there are none yet; {len(begun)} of {len(folder.searches())} searches have started."
        first = Section(name="study", title=config.study, pending=(why,))
    if curves := anytime_curves([summary_of(search) for search in searches]):
        first = replace(first, figures=(*first.figures, curves))
    subtitle = f"{config.study}: {len(folder.searches())} searches, tested together"
    return ReportPage(title=config.name, subtitle=subtitle, sections=(first, again(searches, folder.config)))


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


_LABEL = re.compile(r"(?P<group>.*?)[-_ ]?(?P<number>\d+(?:\.\d+)?)")


def against_number(cells: Sequence[Cell], axis: str, data_set: str = "") -> Figure | None:
    """Plot mean and deviation along ``axis``, a line per loss and setting; None unless its labels are numbers.

    Labels such as ``alpha-1`` and ``alpha-2`` form a line ``alpha``. ``data_set`` names that of the cells if there are
    several.
    """
    place = cells[0].coordinates
    several = [key for key in place if key != axis and len({cell.coordinates[key] for cell in cells}) > 1]
    lines: dict[str, dict[float, Cell]] = {}
    for cell in cells:
        place = cell.coordinates
        if (match := _LABEL.fullmatch(place[axis])) is None:
            return None
        names = [place[key] if key in (LOSS, ROLE) else f"{key} {place[key]}" for key in several]
        line = lines.setdefault(" ".join(filter(None, (*names, match["group"]))) or axis, {})
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
    rows = [key for key in place if key != METRIC]
    return Figure(
        name=re.sub(r"[^A-Za-z0-9-]+", "-", "-".join(filter(None, (f"{metric}-against-{axis}", data_set)))),
        title=", ".join(filter(None, (f"{metric} against {axis}", data_set))),
        finding=" ".join(findings),
        picture=plotted(
            traces,
            {
                "xaxis": {"title": {"text": axis}, "type": "log" if is_log else "linear", "tickvals": ticks},
                "yaxis": {"title": {"text": axis_title(metric)}},
            },
        ),
        table=cell_table(shown, rows, [METRIC]),
    )
