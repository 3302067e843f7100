"""The best value of each loss by what its search had cost until then."""

from collections.abc import Sequence
from html import escape
from itertools import accumulate
from typing import Any

from search.pages.figure import Figure
from search.pages.ink import PLOT_MARKS, colours_of
from search.pages.labels import named_losses
from search.pages.plotted import LEGEND_BELOW, buttons, plotted
from search.plan.stored import StoredSearch
from search.report.results.summary import Summary
from search.report.tables.text_table import TextTable
from search.study.records import epochs_of


def best_by_cost(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Figure | None:
    """The incumbents of every loss by epochs and, on a button, by hours of training; None before the first value."""
    by_name = {summary.name: summary for summary in summaries}
    curves = [
        (label, by_name[search.name].losses[loss].anytime, _hours(search, loss))
        for label, search, loss in named_losses(searches)
        if by_name[search.name].losses[loss].anytime
    ]
    if not curves:
        return None
    colours = colours_of([label for label, _, _ in curves])
    traces: list[dict[str, Any]] = []
    by_epochs, by_hours = [], []
    for position, (label, incumbents, hours) in enumerate(curves):
        epochs = [step.epochs for step in incumbents]
        values = [round(step.value, 6) for step in incumbents]
        by_epochs.append([*epochs, len(hours)])
        by_hours.append([round(hours[min(count, len(hours)) - 1], 4) for count in by_epochs[-1]])
        traces.append(
            {
                "type": "scatter",
                "name": escape(label),
                "x": by_epochs[-1],
                "y": [*values, values[-1]],
                "mode": "lines+markers",
                "line": {"shape": "hv", "color": colours[label]},
                "marker": {"symbol": PLOT_MARKS[position % len(PLOT_MARKS)], "size": 7},
            }
        )
    titles = ("epochs of the search", "hours of training, summed over slots")

    def shown(text: str, xs: Sequence[Sequence[float]], title: str) -> tuple[str, str, list[dict[str, Any]]]:
        return text, "update", [{"x": xs}, {"xaxis.title.text": title}]

    layout = {
        "xaxis": {"title": {"text": titles[0]}},
        "yaxis": {"title": {"text": f"best {escape(summaries[0].objective)} so far"}},
        "legend": LEGEND_BELOW,
        "updatemenus": buttons(shown("epochs", by_epochs, titles[0]), shown("hours", by_hours, titles[1])),
    }
    label, incumbents, hours = max(curves, key=lambda curve: curve[1][-1].value)
    last = incumbents[-1]
    return Figure(
        name="best-by-cost",
        title="The best value by what it cost",
        finding=(
            f"{label} has the highest value, {last.value:.4f}, reached after {last.epochs} of its {len(hours)} epochs; "
            "the best of a search flatters, and more so the longer it is."
        ),
        picture=plotted(traces, layout),
        table=TextTable(
            title="",
            header=("loss", "epochs", "hours", "best value", "trial"),
            rows=tuple(
                (label, str(step.epochs), f"{hours[step.epochs - 1]:.3f}", f"{step.value:.4f}", str(step.trial))
                for label, incumbents, hours in curves
                for step in incumbents
            ),
            labels=1,
            notes=(),
        ),
        wide=True,
    )


def _hours(search: StoredSearch, loss: str) -> list[float]:
    """The hours of training up to the end of each epoch of a loss's search, in the order in which they ended."""
    records = [record for trial in search.trials(loss) for record in epochs_of(trial)]
    ended = sorted(records, key=lambda record: record["end"])
    return list(accumulate((record["end"] - record["start"]) / 3600 for record in ended))
