"""Figures: the history of a search, and why its trials ended."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.report.drawing import BAD, COLOURS, FAINT, INK, Figure, buttons, drawn, plotted, rounded
from search.report.sections.searched import DEFAULT, SearchedLoss, hover, in_state, last_step, trials_table, value_of
from search.report.text_table import TextTable

# What a search found, against the epochs that it had spent.

_STATES = {
    TrialState.COMPLETE: ("complete", COLOURS[0], "circle"),
    TrialState.PRUNED: ("pruned", FAINT, "triangle-down-open"),
    TrialState.FAIL: ("failed", BAD, "x"),
}
_AXES = [
    ("linear", "relayout", [{"xaxis.type": "linear", "xaxis.autorange": True}]),
    ("logarithmic", "relayout", [{"xaxis.type": "log", "xaxis.autorange": True}]),
]


def history(searched: SearchedLoss) -> Figure | None:
    """Each ended trial where its last epoch ended, the best value so far as steps; None before any trial ended.

    A failed trial without a value lies at the lower edge. Confirmations stand above the trial whose configuration was
    trained again.
    """
    ended = [trial for trial in searched.trials if trial.state.is_finished()]
    if not ended:
        return None
    spent = epochs_spent(searched)
    values = [value_of(trial) for trial in ended if trial.intermediate_values]
    traces = [
        _points(searched, in_state(ended, state), spent, min(values, default=0.0), *look)
        for state, look in _STATES.items()
        if in_state(ended, state)
    ]
    total = sum(map(len, searched.records.values()))
    if steps := searched.summary.anytime:
        traces.append(
            {
                "type": "scatter",
                "name": "best so far",
                "mode": "lines",
                "x": [*(step.epochs for step in steps), total],
                "y": [*(rounded(step.value) for step in steps), rounded(steps[-1].value)],
                "line": {"shape": "hv", "color": COLOURS[0], "width": 1.5},
                "hoverinfo": "skip",
            }
        )
    traces += _confirmed(searched, spent)
    if (default := searched.summary.default.value) is not None:
        traces.append(
            {
                "type": "scatter",
                "name": "default",
                "mode": "lines",
                "x": [1, max(total, 2)],
                "y": [rounded(default)] * 2,
                "line": {"color": COLOURS[1], "width": 1.2, "dash": "dash"},
                "hoverinfo": "skip",
            }
        )
    by_epochs = sorted(ended, key=lambda trial: (spent[trial.number], trial.number))
    return Figure(
        name=f"{searched.name}-history",
        title="History",
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
    """How many epochs all trials had trained when the last epoch of each one ended, or where none did, the trial."""
    ends = sorted(
        (record["end"], number, count)
        for number, records in searched.records.items()
        for count, record in enumerate(records)
    )
    spent = {number: position for position, (_, number, _) in enumerate(ends, start=1)}
    for trial in searched.trials:
        if trial.number not in spent and trial.datetime_complete is not None:
            moment = trial.datetime_complete.timestamp()
            spent[trial.number] = max(1, sum(end <= moment for end, _, _ in ends))  # a logarithm has no zero
    return spent


def _points(
    searched: SearchedLoss,
    trials: list[FrozenTrial],
    spent: Mapping[int, int],
    lowest: float,
    name: str,
    colour: str,
    mark: str,
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "mode": "markers",
        "x": [spent[trial.number] for trial in trials],
        "y": [rounded(value_of(trial) if trial.intermediate_values else lowest) for trial in trials],
        "marker": {"color": colour, "symbol": mark, "size": 7},
        "text": [hover(searched, trial) for trial in trials],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _confirmed(searched: SearchedLoss, spent: Mapping[int, int]) -> list[dict[str, Any]]:
    """Each confirmation of a configuration above its trial; several seeds are a column."""
    found = [
        (trial, trial.user_attrs["source_trial"])
        for trial in in_state(searched.confirmations, TrialState.COMPLETE)
        if trial.user_attrs["source_trial"] in spent
    ]
    if not found:
        return []
    by_number = defaultdict(list)
    for trial, number in found:
        by_number[number].append(value_of(trial))
    return [
        {
            "type": "scatter",
            "name": "confirmed with fresh seeds",
            "mode": "markers",
            "x": [spent[number] for _, number in found],
            "y": [rounded(value_of(trial)) for trial, _ in found],
            "marker": {"color": COLOURS[2], "symbol": "diamond-open", "size": 8},
            "text": [
                f"trial {number} with seed {trial.user_attrs['seed']}: {value_of(trial):.4f}<br>"
                f"mean of {len(by_number[number])}: {statistics.fmean(by_number[number]):.4f}"
                for trial, number in found
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }
    ]


def _finding(searched: SearchedLoss, ended: int, total: int) -> str:
    spent = f"{ended:,} trial{'s' if ended > 1 else ''} ended in {total:,} epoch{'' if total == 1 else 's'}"
    if not searched.summary.anytime:
        return f"{spent}, none of them with a value of {searched.objective}."
    best = searched.summary.anytime[-1]
    default = searched.summary.default.value
    beside = (
        "" if default is None or best.trial == DEFAULT else f"; the default's {searched.objective} is {default:.4f}"
    )
    found = f"the highest {searched.objective}, {best.value:.4f}, came after {best.epochs:,} of them{_of(best.trial)}"
    return f"{spent}; {found}{beside}."


def _of(number: int) -> str:
    return " from the default" if number == DEFAULT else f" from trial {number}"


# Why the trials ended.

_CAUSES = {"DIVERGED": "diverged", "OUT_OF_MEMORY": "out of memory", "CODE_ERROR": "code error", "LOST": "lost"}


def ends(searched: SearchedLoss) -> Figure | None:
    """How many trials were trained to their end, pruned at which rung, or failed of what; None before the first."""
    counts = reasons(searched.trials, searched.unit)
    if not counts:
        return None
    from matplotlib.ticker import MaxNLocator  # with what draws

    name = f"{searched.name}-ends"
    with drawn(name, 50 + 20 * len(counts)) as canvas:
        axes = canvas.axes
        bars = axes.barh(range(len(counts)), list(counts.values()), color=[_colour(reason) for reason in counts])
        axes.bar_label(bars, padding=3, color=INK)
        axes.set_yticks(range(len(counts)), list(counts))
        axes.invert_yaxis()
        axes.set_xlabel("trials", color=FAINT)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.margins(x=0.1)
        axes.grid(axis="x")
    total = sum(counts.values())
    return Figure(
        name=name,
        title="Why trials ended",
        finding=f"Of {total:,} trial{'s' if total > 1 else ''}: "
        + ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
        + ".",
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("ended", "trials", "share"),
            rows=tuple((reason, str(count), f"{count / total:.0%}") for reason, count in counts.items()),
            labels=1,
            notes=(),
        ),
    )


def reasons(trials: Sequence[FrozenTrial], unit: str) -> dict[str, int]:
    """How many trials ended for which reason: what is complete, then pruned by its step, then failures."""
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
