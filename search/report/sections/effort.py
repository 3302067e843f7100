"""The section on time and epochs."""

from collections.abc import Sequence

from search.plan.stored import StoredSearch
from search.report.drawing import Section, named_losses
from search.report.results import Summary
from search.report.sections.searched import LOOKS, in_state
from search.report.text_table import NOTHING, TextTable
from search.stages import Stage
from search.trials import epochs_trained

_STAGES = {Stage.SELECT: "confirmation", Stage.TEST: "final", Stage.NOISE: "noise"}


def effort(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Section:
    """Return the tables of times, and of epochs by outcome and stage."""
    epochs = {label: _epochs(search, loss) for label, search, loss in named_losses(searches)}
    shown = [part for part in next(iter(epochs.values()), {}) if any(parts[part] for parts in epochs.values())]
    table = TextTable(
        title="Epochs by outcome",
        header=("loss", *shown, "total"),
        rows=tuple(
            (label, *(f"{parts[part]:,}" for part in shown), f"{sum(parts.values()):,}")
            for label, parts in epochs.items()
        ),
        labels=1,
    )
    return Section(
        name="effort",
        title="Time and epochs",
        results=(_times(summaries), *([table] if shown else [])),
        pending=() if shown else ("No epoch has been trained.",),
    )


def _epochs(search: StoredSearch, loss: str) -> dict[str, int]:
    trials = search.trials(loss)
    return {
        **{f"search ({look.name})": epochs_trained(in_state(trials, state)) for state, look in LOOKS.items()},
        **{part: epochs_trained(search.trials(loss, stage)) for stage, part in _STAGES.items()},
    }


def _times(summaries: Sequence[Summary]) -> TextTable:
    return TextTable(
        title="Time in seconds",
        header=("search", "total", "start-up", "search stage", "slots", "training per slot"),
        rows=tuple(
            (
                summary.name,
                f"{time.wall_s:,.0f}",
                f"{time.startup_s:,.0f}",
                f"{time.search_wall_s:,.0f}",
                str(time.slots),
                f"{time.trial_work_s / time.slots:,.0f}" if time.slots else NOTHING,
            )
            for summary in summaries
            for time in (summary.time,)
        ),
        labels=1,
    )
