"""The sections of a report on all losses, and the one on reproducing it."""

import math
from collections.abc import Sequence
from pathlib import Path

from search import __version__
from search.records.records import Records
from search.records.runs import mlflow_page
from search.results.comparison import Comparison
from search.results.pairs import Pair, the_same
from search.results.rows import sentence, shown_interval
from search.results.summary import Summary
from search.show.comparison_tables import (
    baselines_sentences,
    columns_sentence,
    headline_losses,
    headline_sentences,
    loss_label,
    losses_table,
    pairs_table,
    row_label,
    shown_rows,
)
from search.show.drawing import (
    BAD,
    GOOD,
    PALE,
    Figure,
    Section,
    axis_title,
    hover_text,
    looks_of,
    named_rows,
    of_loss,
    plotted,
    rounded,
    scatter,
)
from search.stages import Role
from search.text_table import NOTHING, TextTable
from trainables.common.errors import counted
from trainables.metrics import score_text, unit


def answer(comparison: Comparison) -> Section:
    """Return the answers and the table that a search prints at its end, and a figure of the test or the search."""
    several, objective = len(comparison.searches) > 1, comparison.objective
    figure = dots(comparison, objective) or anytime_curves(comparison.searches)
    sealed = "Test results: the test classes are sealed until the choice is frozen."
    return Section(
        name="answer",
        title="The answer",
        lead=(
            *map(sentence, comparison.changed),
            *(f"{answer.search}: " * several + line for answer in comparison.answers for line in answer.lines),
        ),
        results=(headline_losses(comparison),),
        figures=(figure,) if figure else (),
        remarks=tuple(map(sentence, headline_sentences(comparison))),
        pending=() if comparison.changed or any(row.test for row in comparison.rows) else (sealed,),
    )


def anytime_curves(summaries: Sequence[Summary]) -> Figure | None:
    """Plot every loss's best value so far as steps; None before a value."""
    every = {
        loss if len(summaries) == 1 else f"{summary.name}/{loss}": entry
        for summary in summaries
        for loss, entry in summary.losses.items()
    }
    curves = {label: entry for label, entry in every.items() if entry.anytime}
    if not curves:
        return None
    looks, split, objective = looks_of(list(every)), summaries[0].split, summaries[0].objective
    traces = [
        scatter(
            label,
            "lines+markers",
            [*(step.epochs for step in entry.anytime), entry.epochs],
            [rounded(unit(objective) * step.value) for step in (*entry.anytime, entry.anytime[-1])],
            line={"shape": "hv", "width": 1.5, "color": looks[label][0]},
            marker={"symbol": f"{looks[label][1]}-open", "size": 6},
            **of_loss(label),
            **hover_text(
                [
                    f"{label}, trial {step.trial}: {score_text(objective, step.value)}, best so far"
                    for step in entry.anytime
                ]
            ),
        )
        for label, entry in curves.items()
    ]
    classes = counted(split.train_classes if split.folds else split.validation_classes, "class", "classes")
    layout = {
        "xaxis": {"title": {"text": "epochs of the search"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": f"{axis_title(objective)}, {classes}"}},
    }
    best, entry = max(curves.items(), key=lambda found: found[1].anytime[-1].value)
    last = entry.anytime[-1]
    return Figure(
        name="anytime",
        title="The search: best value so far",
        finding=f"{best} has the highest value so far, {score_text(objective, last.value)} on {classes}, after "
        f"{last.epochs:,} of its {counted(entry.epochs, 'epoch')}; it is optimistic, more so with more trials.",
        picture=plotted(traces, layout),
        wide=True,
    )


def outcome(comparison: Comparison, searches: Sequence[Records]) -> Section:
    """Return the values of each stage, the differences of all pairs, and the test metrics with their intervals."""
    others = (dots(comparison, metric) for metric in comparison.test_metrics if metric != comparison.objective)
    progress = anytime_curves(comparison.searches) if comparison.test_metrics else None
    untrained = any(row.role is Role.BASELINE for row in comparison.rows)
    scored = {opening.id for search in searches for opening in search.openings}
    openings = TextTable(
        title="Scored openings of the test classes",
        header=("time", "search", "reason", "configurations"),
        rows=tuple(
            (opening.time, opening.search, opening.reason, str(sum(opening.configurations.values())))
            for opening in searches[0].ledger.openings()
            if opening.id in scored
        ),
        labels=3,
    )
    return Section(
        name="comparison",
        title="Untrained, default and tuned" if untrained else "Default and tuned",
        results=(losses_table(comparison),),
        figures=tuple(figure for figure in (pair_matrix(comparison), *others, progress) if figure),
        remarks=tuple(map(sentence, (*baselines_sentences(comparison), columns_sentence(comparison)))),
        tables=(openings,) if openings.rows else (),
        pending=() if comparison.test_metrics or comparison.changed else ("Test values: the test classes are sealed.",),
        missing=() if comparison.pairs else comparison.left_out,
    )


def dots(comparison: Comparison, metric: str) -> Figure | None:
    """Plot each row's ``metric`` on the test classes, chosen rows filled and others hollow; None while sealed."""
    tested = [(row, entry) for row in shown_rows(comparison) if (entry := (row.test or {}).get(metric))]
    if not tested:
        return None
    labels, scale = [row_label(comparison, row) for row, _ in tested], unit(metric)
    # Baselines last, so that a loss has its colour with and without them, the same in every figure.
    rows = sorted(comparison.rows, key=lambda row: row.role is Role.BASELINE)
    looks = looks_of([loss_label(comparison, row.search, row.loss) for row in rows])
    traces = []
    for place, (label, (row, entry)) in enumerate(zip(labels, tested, strict=True)):
        loss = loss_label(comparison, row.search, row.loss)
        colour, _ = looks[loss]
        face = "circle" if row.role is Role.TUNED else "circle-open"
        shared = {"showlegend": False, **of_loss(loss)}
        text = f"{label}: {score_text(metric, entry.mean)} {shown_interval(metric, entry.ci95)}".strip()
        low, high = entry.ci95 or (entry.mean, entry.mean)
        bars = {
            "type": "data",
            "symmetric": False,
            "array": [rounded(scale * (high - entry.mean))],
            "arrayminus": [rounded(scale * (entry.mean - low))],
            "thickness": 1.5,
            "width": 4,
            "color": colour,
        }
        traces += [
            scatter(
                label,
                "markers",
                [rounded(scale * value) for value in entry.values],
                [place] * len(entry.values),
                marker={"symbol": "line-ns-open", "size": 9, "color": colour},
                hoverinfo="skip",
                **shared,
            ),
            scatter(
                label,
                "markers",
                [rounded(scale * entry.mean)],
                [place],
                marker={"symbol": face, "size": 10, "color": colour},
                error_x=bars,
                **hover_text([text]),
                **shared,
            ),
        ]
    best, highest = max(zip(labels, tested, strict=True), key=lambda found: found[1][1].mean)
    worst, lowest = min(zip(labels, tested, strict=True), key=lambda found: found[1][1].mean)
    return Figure(
        name=f"test-{metric}",
        title=f"{metric} on the test classes",
        finding=f"Mean {metric} is highest for {best} ({score_text(metric, highest[1].mean)}) and lowest for {worst} "
        f"({score_text(metric, lowest[1].mean)}). Circles are means with 95 % intervals, ticks are seeds.",
        picture=plotted(traces, named_rows(labels, axis_title(metric)), height=110 + 26 * len(tested)),
        table=TextTable(
            header=("configuration", metric, "deviation", "95 % interval", "seeds"),
            rows=tuple(
                (
                    label,
                    score_text(metric, entry.mean),
                    score_text(metric, entry.std or None),
                    shown_interval(metric, entry.ci95) or NOTHING,
                    str(entry.seeds),
                )
                for label, (_, entry) in zip(labels, tested, strict=True)
            ),
        ),
    )


_WIDEST = 8
"""Columns of the matrix of pairs up to which a cell is wide enough for a difference and its mark on one line."""


def pair_matrix(comparison: Comparison) -> Figure | None:
    """Plot the difference of each tuned loss, a row, from its default, the other losses and the networks as they are.

    A pair of losses is in the rows of both, with opposite signs. None without a pair.
    """
    pairs, own = comparison.pairs, "its default"
    if not pairs:
        return None
    cells: dict[tuple[str, str], tuple[Pair, float]] = {}
    for pair in pairs:
        first, second = (loss_label(comparison, key.search, key.loss) for key in (pair.first, pair.second))
        cells[first, own if pair.second.role is Role.DEFAULT else second] = pair, pair.difference
        if pair.second.role is Role.TUNED:
            cells[second, first] = pair, -pair.difference
    labels = dict.fromkeys(loss_label(comparison, row.search, row.loss) for row in comparison.rows)
    losses = [label for label in labels if any(label == row for row, _ in cells)]
    others = [label for label in labels if label not in losses]
    columns = [name for name in (own, *losses, *others) if any(name == to for _, to in cells)]
    found = [[cells.get((loss, other)) for other in columns] for loss in losses]
    between = "<br>" if len(columns) > _WIDEST else " "
    heat = {
        "type": "heatmap",
        "x": columns,
        "y": losses,
        "z": [[cell and cell[0].differ * math.copysign(1, cell[1]) for cell in row] for row in found],
        "text": [[f"{100 * cell[1]:+.1f}{between}{_mark(*cell)}" if cell else "" for cell in row] for row in found],
        "texttemplate": "%{text}",
        "colorscale": [[0, BAD], [0.5, PALE], [1, GOOD]],
        "zmin": -1,
        "zmax": 1,
        "showscale": False,
        "xgap": 3,
        "ygap": 3,
        "hoverinfo": "skip",
    }
    differ = sum(pair.differ for pair in pairs)
    marks = "≈ not significantly different" if pairs[0].within is None else f"= {the_same(pairs[0])}, ? undecided"
    return Figure(
        name=f"pairs-{pairs[0].metric}",
        title="Differences between losses",
        finding=f"{differ:,} of {counted(len(pairs), 'pair')} differ significantly in {pairs[0].metric} (corrected for "
        f"all pairs). In points, row minus column: ↑ higher, ↓ lower, {marks}.",
        picture=plotted(
            [heat],
            {
                "xaxis": {"side": "top", "showgrid": False},
                "yaxis": {"autorange": "reversed", "showgrid": False},
                "margin": {"b": 15},
            },
            height=110 + 34 * len(losses),
        ),
        table=pairs_table(comparison),
        wide=len(columns) > _WIDEST,
    )


def _mark(pair: Pair, difference: float) -> str:
    if pair.differ:
        return f"{'↑' if difference > 0 else '↓'}{'=' * pair.same}"
    if pair.within is None:
        return "≈"
    return "=" if pair.same else "?"


def again(searches: Sequence[Records], campaign: Path | None = None) -> Section:
    """Return the commands that run and verify these searches, and their digests, seeds and files.

    ``campaign`` is the file of the campaign that they belong to, if any.
    """
    names = " ".join(search.name for search in searches)
    files = [search.folder.config for search in searches] if campaign is None else [campaign]
    checked = campaign.parent.name if campaign else names
    page = mlflow_page([search.folder for search in searches]) if len(searches) > 1 else None
    return Section(
        name="again",
        title="Reproduce",
        sentences=(
            f"Written by Holdout {__version__}. The file below holds all settings.",
            f"`holdout verify {checked}` recomputes the results from the records; "
            + (f"`holdout run {campaign}`" if campaign else f"`holdout compare {names}`")
            + " prints the tables.",
            *([f"Compared in MLflow: `{page}`."] if page else []),
        ),
        results=(
            TextTable(
                title="Searches",
                header=("search", "command", "split", "frozen choice", "seed"),
                rows=tuple(
                    (
                        search.name,
                        f"holdout run {search.folder.config}",
                        search.split.digest[:12],
                        search.selection.digest[:12] if search.selection else "not yet",
                        str(search.content["search"]["seed"]),
                    )
                    for search in searches
                ),
                labels=2,
            ),
        ),
        files=tuple((str(file.relative_to(file.parents[1])), file.read_text("utf-8")) for file in files),
    )
