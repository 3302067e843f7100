"""Why the trials ended."""

from collections import Counter
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.figures.search.searched import SearchedLoss, last_step
from search.pages.ink import BAD, COLOURS, FAINT, INK
from search.report.tables.text_table import TextTable

_CAUSES = {"DIVERGED": "diverged", "OUT_OF_MEMORY": "out of memory", "CODE_ERROR": "code error", "LOST": "lost"}


def ends(searched: SearchedLoss) -> Figure | None:
    """How many trials were trained to their end, pruned at which rung, or failed of what; None before the first."""
    counts = reasons(searched.trials, searched.pruner.unit)
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
