"""Figures: the history of a search, and the outcomes of its trials."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.report.drawing import (
    BAD,
    COLOURS,
    FAINT,
    INK,
    Figure,
    buttons,
    drawn,
    hover_text,
    label_rows,
    plotted,
    rounded,
    scatter,
)
from search.report.sections.searched import (
    DEFAULT,
    LOOKS,
    Look,
    SearchedLoss,
    hover,
    in_state,
    last_step,
    trials_table,
    value_of,
)
from search.report.text_table import TextTable
from trainables.mistakes import counted

# Values against the epochs that the search has spent.

_AXES = [
    ("linear", "relayout", [{"xaxis.type": "linear", "xaxis.autorange": True}]),
    ("logarithmic", "relayout", [{"xaxis.type": "log", "xaxis.autorange": True}]),
]


def history(searched: SearchedLoss) -> Figure | None:
    """Plot each finished trial at its last epoch; None before a trial finished.

    Failed trials without a value are drawn at the lowest value. The best value so far is in the picture of all losses.
    """
    ended = [trial for trial in searched.trials if trial.state.is_finished()]
    if not ended:
        return None
    spent = epochs_spent(searched)
    values = [value_of(trial) for trial in ended if trial.intermediate_values]
    traces = [
        _points(searched, of_state, spent, min(values, default=0.0), look)
        for state, look in LOOKS.items()
        if (of_state := in_state(ended, state))
    ]
    total = sum(map(len, searched.records.values()))
    if (default := searched.summary.default.search_value) is not None:
        traces.append(
            scatter(
                "default",
                "lines",
                [1, max(total, 2)],
                [rounded(default)] * 2,
                line={"color": COLOURS[1], "width": 1.2, "dash": "dash"},
                hoverinfo="skip",
            )
        )
    by_epochs = sorted(ended, key=lambda trial: (spent[trial.number], trial.number))
    return Figure(
        name=f"{searched.name}-history",
        title="Trials in order",
        finding=_finding(searched, len(ended), total),
        picture=plotted(
            traces,
            {
                "xaxis": {"title": {"text": "epochs spent by all trials"}},
                "yaxis": {"title": {"text": searched.objective}},
                "updatemenus": buttons(*_AXES),
            },
        ),
        table=trials_table(searched, by_epochs),
        wide=True,
    )


def epochs_spent(searched: SearchedLoss) -> Mapping[int, int]:
    """Return the epochs that all trials had trained when each trial's last epoch (or the trial itself) ended."""
    ends = sorted(
        (record["end"], number, count)
        for number, records in searched.records.items()
        for count, record in enumerate(records)
    )
    spent = {number: position for position, (_, number, _) in enumerate(ends, start=1)}
    for trial in searched.trials:
        if trial.number not in spent and trial.datetime_complete is not None:
            moment = trial.datetime_complete.timestamp()
            spent[trial.number] = max(1, sum(end <= moment for end, _, _ in ends))  # a log axis has no zero
    return spent


def _points(
    searched: SearchedLoss,
    trials: list[FrozenTrial],
    spent: Mapping[int, int],
    lowest: float,
    look: Look,
) -> dict[str, Any]:
    return scatter(
        look.name,
        "markers",
        [spent[trial.number] for trial in trials],
        [rounded(value_of(trial) if trial.intermediate_values else lowest) for trial in trials],
        marker={"color": look.colour, "symbol": look.mark, "size": 7},
        **hover_text([hover(searched, trial) for trial in trials]),
    )


def _finding(searched: SearchedLoss, ended: int, total: int) -> str:
    spent = f"{counted(ended, 'trial')} ended in {counted(total, 'epoch')}"
    if not searched.summary.anytime:
        return f"{spent}, without a value of {searched.objective}."
    best, default = searched.summary.anytime[-1], searched.summary.default.search_value
    which = "the default" if best.trial == DEFAULT else f"trial {best.trial}"
    compared = "" if default is None or best.trial == DEFAULT else f" (default: {default:.4f})"
    return (
        f"{spent}; {which} reached the highest {searched.objective}, {best.value:.4f}{compared}, after "
        f"{counted(best.epochs, 'epoch')} of the search."
    )


# Outcomes of the trials.

_CAUSES = {"DIVERGED": "diverged", "OUT_OF_MEMORY": "out of memory", "CODE_ERROR": "code error", "LOST": "lost"}


def ends(searched: SearchedLoss) -> Figure | None:
    """Draw the number of trials by outcome; None before the first trial."""
    counts = reasons(searched.trials, searched.unit)
    if not counts:
        return None
    from matplotlib.ticker import MaxNLocator  # as late as Matplotlib itself

    name = f"{searched.name}-ends"
    with drawn(name, 50 + 20 * len(counts)) as canvas:
        axes = canvas.axes
        bars = axes.barh(range(len(counts)), list(counts.values()), color=[_colour(reason) for reason in counts])
        axes.bar_label(bars, padding=3, color=INK)
        label_rows(axes, list(counts), "trials")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.1)
    total = sum(counts.values())
    return Figure(
        name=name,
        title="Trials by outcome",
        finding=f"{counted(total, 'trial')}: {', '.join(f'{count:,} {reason}' for reason, count in counts.items())}.",
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("outcome", "trials", "share"),
            rows=tuple((reason, str(count), f"{count / total:.0%}") for reason, count in counts.items()),
            labels=1,
        ),
    )


def reasons(trials: Sequence[FrozenTrial], unit: str) -> dict[str, int]:
    """Count trials by outcome: complete, pruned by step, failed by cause, running."""
    counts = Counter(map(_order_and_reason, trials))
    named = {"complete": "complete", "running": "running"}
    return {
        named.get(reason) or _CAUSES.get(reason) or f"pruned after {unit} {step}": counts[order, step, reason]
        for order, step, reason in sorted(counts)
    }


def _order_and_reason(trial: FrozenTrial) -> tuple[int, int, str]:
    if trial.state == TrialState.PRUNED:
        return 1, last_step(trial), "pruned"
    if trial.state == TrialState.FAIL:
        cause = trial.user_attrs["failure"]["cause"]
        return 2, list(_CAUSES).index(cause), cause
    return (0, 0, "complete") if trial.state == TrialState.COMPLETE else (3, 0, "running")


def _colour(reason: str) -> str:
    if reason in _CAUSES.values():
        return BAD
    return {"complete": COLOURS[0], "running": COLOURS[5]}.get(reason, FAINT)
