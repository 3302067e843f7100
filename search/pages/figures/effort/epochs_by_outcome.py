"""How many epochs went into trials that were completed, pruned or failed, and into the later stages."""

from collections.abc import Sequence

from optuna.trial import TrialState

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.ink import BAD, COLOURS, FAINT
from search.pages.labels import named_losses
from search.plan.stored import StoredSearch
from search.report.tables.text_table import TextTable
from search.study.names import Stage
from search.study.records import epochs_trained

_PARTS = {
    "search, complete": (COLOURS[0], ""),
    "search, pruned": (FAINT, "//"),
    "search, failed": (BAD, "xx"),
    "search, running": (COLOURS[5], ".."),
    "confirmation": (COLOURS[2], ""),
    "for the test": (COLOURS[3], "\\\\"),
    "noise and audit": (COLOURS[4], ".."),
}
_STAGES = {
    Stage.SELECT: "confirmation",
    Stage.TEST: "for the test",
    Stage.NOISE: "noise and audit",
    Stage.AUDIT: "noise and audit",
}
_STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


def epochs_by_outcome(searches: Sequence[StoredSearch]) -> Figure | None:
    """Bars of epochs, one a loss; None before an epoch ended."""
    bars = {label: _epochs(search, loss) for label, search, loss in named_losses(searches)}
    total = sum(sum(parts.values()) for parts in bars.values())
    if not total:
        return None
    shown = [part for part in _PARTS if any(parts[part] for parts in bars.values())]
    with drawn("epochs-by-outcome", 110 + 26 * len(bars)) as canvas:
        axes = canvas.axes
        left = [0] * len(bars)
        for part in shown:
            colour, hatch = _PARTS[part]
            widths = [parts[part] for parts in bars.values()]
            axes.barh(range(len(bars)), widths, left=left, color=colour, hatch=hatch, edgecolor="white", label=part)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(bars)), list(bars))
        axes.invert_yaxis()
        axes.set_xlabel("epochs", color=FAINT)
        canvas.axes.figure.legend(loc="outside lower left", ncols=3)
    sums = {part: sum(parts[part] for parts in bars.values()) for part in shown}
    return Figure(
        name="epochs-by-outcome",
        title="Epochs by what became of them",
        finding=f"Of {total:,} epochs: " + ", ".join(f"{epochs:,} {part}" for part, epochs in sums.items()) + ".",
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("loss", *shown),
            rows=tuple((label, *(f"{parts[part]:,}" for part in shown)) for label, parts in bars.items()),
            labels=1,
            notes=(),
        ),
    )


def _epochs(search: StoredSearch, loss: str) -> dict[str, int]:
    parts = dict.fromkeys(_PARTS, 0)
    for trial in search.trials(loss):
        parts[f"search, {_STATES.get(trial.state, 'running')}"] += epochs_trained([trial])
    for stage, part in _STAGES.items():
        parts[part] += epochs_trained(search.trials(loss, stage))
    return parts
