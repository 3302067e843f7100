"""The section on the search of one loss: the choice, learning curves, importances, values by hyperparameter."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from optuna.trial import FrozenTrial, TrialState

from search.records.records import Records
from search.results.rows import parameters, sentence
from search.results.summary import LossSummary, Summary
from search.show.drawing import (
    BAD,
    COLOURS,
    FAINT,
    Figure,
    Section,
    as_plot,
    axis_title,
    hover_text,
    named_rows,
    plotted,
    rounded,
    scatter,
)
from search.show.sections.importances import MIN_TRIALS, Importances, importances
from search.tables import PRUNERS
from search.text_table import NOTHING, TextTable
from search.trials import epochs_of, value_in
from spaces.space import Choice, Float, Range, Value, value_text
from trainables.common.errors import counted
from trainables.common.ranges import range_of
from trainables.metrics import score_text, unit

DEFAULT: Final = 0
"""Number of the trial with the paper's default configuration."""


class Look(NamedTuple):
    """The name, colour and Plotly mark of a trial's state."""

    name: str
    colour: str
    mark: str


LOOKS: Final[Mapping[TrialState, Look]] = {
    TrialState.COMPLETE: Look("complete", COLOURS[0], "circle"),
    TrialState.PRUNED: Look("pruned", FAINT, "triangle-down-open"),
    TrialState.FAIL: Look("failed", BAD, "x"),
    TrialState.RUNNING: Look("running", COLOURS[5], "circle-open"),
}
"""By state, in the order of legends."""


def choice_texts(entry: Range) -> list[str]:
    """Return the choices as text, numbers sorted."""
    numbers = entry.numbers if isinstance(entry, Choice) else []
    return [*map(value_text, numbers if len(numbers) == len(entry.ends) else entry.ends)]


def range_text(entry: Range) -> str:
    if not isinstance(entry, Float):
        return ", ".join(choice_texts(entry))
    ends = f"[{value_text(entry.low)}, {value_text(entry.high)}]"
    return f"{ends}, log" if entry.log else ends


def param_text(params: Mapping[str, Value], name: str) -> str:
    return value_text(params[name]) if name in params else NOTHING


@dataclass(frozen=True, kw_only=True)
class SearchedLoss:
    """The search of ``loss``, as its figures read it: its pruner (of :data:`PRUNERS`), and the started trials."""

    loss: str
    objective: str
    summary: LossSummary
    pruner: Any
    trials: tuple[FrozenTrial, ...]

    @property
    def name(self) -> str:
        """Return the name of its section: letters, digits and hyphens."""
        plain = re.sub(r"[^A-Za-z0-9_]", lambda found: f"-{ord(found[0]):x}-", self.loss)
        return f"loss-{plain.replace('_', '-')}"

    @cached_property
    def varying(self) -> Mapping[str, Range]:
        """Return the hyperparameters that vary, each with the range of the last trial that has it."""
        drawn = {name: entry for trial in self.trials for name, entry in trial.distributions.items()}
        return {name: range_of(entry) for name, entry in drawn.items() if not entry.single()}

    @property
    def constants(self) -> Mapping[str, Value]:
        """Return the hyperparameters with a single possible value."""
        found = {name: value for trial in self.trials for name, value in trial.params.items()}
        return {name: value for name, value in found.items() if name not in self.varying}

    @cached_property
    def valued(self) -> list[FrozenTrial]:
        """Return the trials with a value, best first: complete ones, then those with the most steps, each by value."""
        return sorted(
            (trial for trial in self.trials if trial.intermediate_values),
            key=lambda of: (of.state != TrialState.COMPLETE, -max(of.intermediate_values), -value_of(of)),
        )

    @property
    def chosen(self) -> int | None:
        """Return the number of the chosen trial; before the choice, of the best one so far."""
        return self.summary.tuned.number

    @property
    def special(self) -> dict[int | None, Look]:
        """Return the looks of the default's trial and of the chosen one, by number."""
        chosen = Look("chosen" if self.summary.chosen else "best so far", COLOURS[2], "star")
        return {DEFAULT: Look("default", COLOURS[1], "diamond"), self.chosen: chosen}

    @cached_property
    def importances(self) -> Importances | None:
        return importances(self.trials, (*self.pruner.rungs, self.pruner.steps), list(self.varying))


def value_of(trial: FrozenTrial) -> float:
    """Return the value after the last step, as pruning compares it."""
    return float(trial.intermediate_values[max(trial.intermediate_values)])


def in_state(trials: Sequence[FrozenTrial], state: TrialState) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.state == state]


def loss_section(search: Records, summary: Summary, loss: str) -> Section:
    """Return the section on the search of ``loss``, which is read from its studies."""
    steps = int(search.content["training"]["epochs"]) * (summary.split.folds or 1)
    searched = SearchedLoss(
        loss=loss,
        objective=summary.objective,
        summary=summary.losses[loss],
        pruner=PRUNERS[search.content["search"]["pruner"]](steps=steps),
        trials=tuple(trial for trial in search.trials(loss) if trial.state != TrialState.WAITING),
    )
    counts = searched.summary.trials
    if not searched.trials:
        return Section(name=searched.name, title=loss, pending=("No trial has started.",), loss=loss)
    figures = [draw(searched) for draw in (learning_curves, importances_figure, slices)]
    return Section(
        name=searched.name,
        title=loss,
        results=(_table(searched),) if searched.varying else (),
        sentences=(
            _choice(searched),
            f"{counted(counts.complete, 'trial')} completed, {counts.pruned} pruned and {counts.failed} failed in "
            f"{counted(searched.summary.epochs, 'epoch')}; {searched.pruner.plan}.",
        ),
        figures=tuple(figure for figure in figures if figure),
        remarks=tuple(_remarks(searched)),
        pending=tuple(_pending(searched)),
        loss=loss,
    )


def _remarks(searched: SearchedLoss) -> Iterator[str]:
    yield from map(sentence, searched.summary.remarks)
    if searched.constants:
        yield f"Fixed hyperparameters: {parameters(searched.constants)}."
    if not searched.varying:
        yield "There are no figures by hyperparameter: this loss has none that varies."


def _choice(searched: SearchedLoss) -> str:
    entry, objective = searched.summary, searched.objective
    if entry.chosen:
        what = "The default was chosen" if entry.chosen.number == DEFAULT else "A configuration was chosen"
        return f"{what}: {entry.choice or f'trial {entry.chosen.number}'}."
    if entry.best:
        of_default = entry.default.search_value
        default = "" if of_default is None else f" (default: {score_text(objective, of_default)})"
        return (
            f"Nothing is chosen yet; the best trial so far is {entry.best.number} with {objective} "
            f"{score_text(objective, entry.best.value)}{default}."
        )
    return "Nothing can be chosen: no trial is complete."


def _table(searched: SearchedLoss) -> TextTable:
    default, params = searched.summary.default, searched.summary.tuned.params or {}
    notes = ["the default is clipped to the nearest value in the search range"] if default.clipped else []
    return TextTable(
        title="Hyperparameters",
        header=("hyperparameter", "default", searched.special[searched.chosen].name, "search range"),
        rows=tuple(
            (name, param_text(default.params or {}, name), param_text(params, name), range_text(entry))
            for name, entry in searched.varying.items()
        ),
        notes=tuple(notes),
    )


def _pending(searched: SearchedLoss) -> Iterator[str]:
    if not searched.valued:
        yield f"Learning curves: no trial has a value of {searched.objective}."
        return
    if len(searched.varying) > 1 and searched.importances is None:
        yield (
            f"Importances: they need {MIN_TRIALS} trials at the same rung, and "
            f"{counted(len(searched.valued), 'trial')} {'has' if len(searched.valued) == 1 else 'have'} a value."
        )


MOST_ROWS = 200
"""Rows of a table of trials."""


def learning_curves(searched: SearchedLoss) -> Figure | None:
    """Plot the objective of each trial after each epoch; None before any epoch.

    The curves are measured values, not running maxima: a trial's value is the maximum of its curve. In a
    cross-validation there is one point per fold, the mean of the folds so far.
    """
    if not searched.valued:
        return None
    traces = [_curves(searched, of_state, state) for state in LOOKS if (of_state := in_state(searched.valued, state))]
    for trial in searched.valued:
        if look := searched.special.get(trial.number):
            line = {"color": look.colour, "width": 3, "dash": "solid" if trial.number == searched.chosen else "dash"}
            traces.append(scatter(look.name, "lines", *_curve(searched, trial), line=line, hoverinfo="skip"))
    rungs, last = searched.pruner.rungs, searched.pruner.steps
    reached = [
        f"{sum(step in trial.intermediate_values for trial in searched.valued)} reached epoch {step}"
        for step in (*rungs, last)
    ]
    line = {"type": "line", "y0": 0, "y1": 1, "yref": "paper", "line": {"color": FAINT, "width": 1, "dash": "dot"}}
    dotted = " (dotted: rungs, where trials are compared)" if rungs else ""
    best = searched.valued[0]
    return Figure(
        name=f"{searched.name}-learning-curves",
        title="Learning curves",
        finding=f"Of {counted(len(searched.valued), 'trial')}, {', '.join(reached)}{dotted}; the best, "
        f"{_title(searched, best)}, reached {score_text(searched.objective, value_of(best))}.",
        picture=plotted(
            traces,
            {
                "xaxis": {"title": {"text": "epoch"}, "dtick": 1 if last <= 20 else None},
                "yaxis": {"title": {"text": axis_title(searched.objective)}},
                "shapes": [{**line, "x0": rung, "x1": rung} for rung in rungs],
            },
        ),
        table=_trials(searched),
        wide=True,
    )


def _curve(searched: SearchedLoss, trial: FrozenTrial) -> tuple[list[int], list[float]]:
    """Return the steps of a trial and the value measured after each."""
    if any("fold" in record for record in epochs_of(trial)):
        measured = sorted(trial.intermediate_values.items())
    else:
        measured = [(record["epoch"], value_in(record, searched.objective)) for record in epochs_of(trial)]
    return [step for step, _ in measured], [rounded(unit(searched.objective) * value) for _, value in measured]


def _curves(searched: SearchedLoss, trials: Sequence[FrozenTrial], state: TrialState) -> dict[str, Any]:
    """Return the curves of ``trials`` as one line with gaps."""
    name, colour, mark = LOOKS[state]
    x: list[int | None] = []
    y: list[float | None] = []
    numbers: list[int | None] = []
    for trial in trials:
        steps, values = _curve(searched, trial)
        x += [*steps, None]
        y += [*values, None]
        numbers += [*[trial.number] * len(steps), None]
    return scatter(
        name,
        "lines+markers",
        x,
        y,
        customdata=numbers,
        line={"color": colour, "width": 1},
        marker={"symbol": mark, "size": 4},
        opacity=0.6,
        hovertemplate="trial %{customdata}, epoch %{x}: %{y:.4~g}<extra></extra>",
    )


def importances_figure(searched: SearchedLoss) -> Figure | None:
    """Draw each hyperparameter's share in placing a trial in the better half; None with too few trials.

    Trials are compared at each rung and at the end, and each rung weighs as much as the number of trials that reached
    it (:func:`search.show.sections.importances.importances`).
    """
    found = searched.importances
    if found is None or len(found.shares) < 2:
        return None
    name, shares = f"{searched.name}-importances", found.shares
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": list(map(rounded, shares.values())),
        "y": list(range(len(shares))),
        "text": [f"{share:.0%}" for share in shares.values()],
        "marker": {"color": COLOURS[0]},
        "hoverinfo": "skip",
    }
    layout = named_rows(list(shares), "share (PED-ANOVA)")
    layout["xaxis"]["tickformat"] = ".0%"
    first, second = list(shares)[:2]
    compared = ", ".join(f"{count} after epoch {rung}" for rung, count in found.rungs.items())
    return Figure(
        name=name,
        title="Importances of the hyperparameters",
        finding=f"{first} matters most with {shares[first]:.0%}, then {second} with {shares[second]:.0%}: shares in "
        f"placing a trial in the better half at the same rungs ({compared}); rough with few trials.",
        picture=plotted([bars], layout, height=110 + 26 * len(shares)),
    )


_COLUMNS = 2


def slices(searched: SearchedLoss) -> Figure | None:
    """Plot the values against each hyperparameter; None without a value or a varying hyperparameter."""
    if not searched.varying or not searched.valued:
        return None
    from plotly.subplots import make_subplots  # half a second

    trials = searched.valued
    series = [(LOOKS[state], in_state(trials, state), 6) for state in (TrialState.PRUNED, TrialState.COMPLETE)]
    for number, look in searched.special.items():
        series.append((look, [trial for trial in trials if trial.number == number], 11))
    rows = -(-len(searched.varying) // _COLUMNS)
    figure = make_subplots(rows, _COLUMNS, shared_yaxes="all", vertical_spacing=0.45 / rows).update_yaxes(
        title_text=axis_title(searched.objective), col=1
    )
    for place, (parameter, entry) in enumerate(searched.varying.items()):
        at = {"row": place // _COLUMNS + 1, "col": place % _COLUMNS + 1}
        for (label, colour, mark), of_series, size in series:
            having = [trial for trial in of_series if parameter in trial.params]
            figure.add_scatter(
                name=label,
                mode="markers",
                x=[_place(trial.params[parameter], entry) for trial in having],
                y=[rounded(unit(searched.objective) * value_of(trial)) for trial in having],
                marker={"color": colour, "symbol": mark, "size": size},
                legendgroup=label,
                showlegend=not place,
                **hover_text(
                    [
                        f"{_title(searched, trial)}: {score_text(searched.objective, value_of(trial))}"
                        for trial in having
                    ]
                ),
                **at,
            )
        figure.update_xaxes(title_text=parameter, **_axis(entry), **at)
    return Figure(
        name=f"{searched.name}-slices",
        title="Value by hyperparameter",
        finding=f"{searched.objective} of {counted(len(trials), 'trial')} against {', '.join(searched.varying)}, "
        f"with the default and the {searched.special[searched.chosen].name} configuration.",
        picture=as_plot(figure.update_layout(margin={"t": 30}), height=80 + 200 * rows),
    )


def _axis(entry: Range) -> dict[str, Any]:
    if isinstance(entry, Float):
        return {"type": "log", "dtick": 1, "exponentformat": "power"} if entry.log else {"type": "linear"}
    return {"type": "category", "categoryarray": choice_texts(entry)}


def _place(value: Value, entry: Range) -> Value:
    """Return a value as an axis takes it: a number of a range, and a choice as text."""
    return rounded(float(value)) if isinstance(entry, Float) else value_text(value)  # type: ignore[arg-type]


def _title(searched: SearchedLoss, trial: FrozenTrial) -> str:
    look = searched.special.get(trial.number)
    return f"trial {trial.number} ({look.name})" if look else f"trial {trial.number}"


def _trials(searched: SearchedLoss) -> TextTable:
    names, more = list(searched.varying), len(searched.valued) - MOST_ROWS
    return TextTable(
        header=("trial", searched.objective, "epochs", *names, "outcome"),
        rows=tuple(
            (
                _title(searched, trial),
                score_text(searched.objective, value_of(trial)),
                str(trial.last_step),
                *(param_text(trial.params, name) for name in names),
                textwrap.shorten(str(trial.user_attrs.get("outcome", "still running")), 120, placeholder=" …"),
            )
            for trial in searched.valued[:MOST_ROWS]
        ),
        notes=(f"{counted(more, 'more trial')} not shown; `holdout trials` lists all",) if more > 0 else (),
    )
