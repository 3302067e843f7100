"""The comparison of losses: default and tuned, at search, at confirmation and on the test classes."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from trainables.mistakes import Mistakes

NOTHING = "–"


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _spread(entry: Mapping[str, Any] | None) -> str:
    """A mean with half its interval, or with its deviation where no interval is kept."""
    if not entry:
        return NOTHING
    if entry.get("ci95"):
        return f"{entry['mean']:.4f} ± {entry['ci95'][1] - entry['mean']:.4f}"
    if entry.get("std") is not None:
        return f"{entry['mean']:.4f} ± {entry['std']:.4f}"
    return f"{entry['mean']:.4f}"


def _parameters(params: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items()
    )


def test_metrics(summary: Mapping[str, Any]) -> list[str]:
    """The test metrics that a table shows: the objective and Recall@1, as far as they were computed."""
    computed = {
        name
        for loss in summary["losses"].values()
        for entry in (loss["test"], loss["default"]["test"])
        if entry
        for name in entry
    }
    return [name for name in dict.fromkeys(("recall_at_1", summary["objective"])) if name in computed]


def comparison_table(summary: Mapping[str, Any], openings: str) -> Table:
    """One search's comparison, a row a loss and role."""
    objective = summary["objective"]
    metrics = test_metrics(summary)
    table = Table(title=f"{summary['name']}: losses, default and tuned", title_justify="left", caption_justify="left")
    table.box = SIMPLE_HEAD
    table.add_column("loss", no_wrap=True)
    table.add_column("trial", no_wrap=True)
    for heading in (f"{objective}\nsearch", f"{objective}\nconfirmed", *(f"{name}\ntest" for name in metrics or ["–"])):
        table.add_column(heading, justify="right")
    for loss, entry in summary["losses"].items():
        default, best, confirmed = entry["default"], entry["best"], entry["confirmed"]
        tuned = confirmed or best
        value = confirmed["search_value"] if confirmed else best["value"] if best else None
        table.add_row(
            loss,
            "0, default clipped" if default["clipped"] else "0, default",
            _number(default["value"]),
            _spread(default["confirmed"]),
            *_test_cells(default["test"], metrics),
        )
        table.add_row(
            "",
            _choice(tuned, default["params"]),
            _number(value),
            _spread(confirmed),
            *_test_cells(entry["test"], metrics),
            end_section=True,
        )
    table.caption = _caption(summary, openings)
    return table


def _choice(tuned: Mapping[str, Any] | None, default: Mapping[str, Any]) -> str:
    if tuned is None:
        return "none finished"
    return "default is best" if tuned["params"] == default else f"{tuned['number']}, tuned"


def _test_cells(test: Mapping[str, Any] | None, metrics: Sequence[str]) -> list[str]:
    return [_spread(test[name]) if test else NOTHING for name in metrics] or ["sealed"]


def _caption(summary: Mapping[str, Any], openings: str) -> str:
    lines = []
    for loss, entry in summary["losses"].items():
        chosen = entry["confirmed"] or entry["best"]
        trials = entry["trials"]
        counts = f"{trials['complete']} complete, {trials['pruned']} pruned, {trials['failed']} failed"
        lines.append(f"{loss}: {_parameters(chosen['params']) if chosen else 'no trial finished'} ({counts})")
    split = summary["split"]
    lines.append(f"split {split['digest'][:12]}: {_classes(split)}; {openings}")
    over = " over seeds and folds" if split["folds"] else ""
    lines.append(
        "search: one run; confirmed: mean ± sample deviation over seeds; "
        f"test: mean ± 95 % interval (Student's t){over}"
    )
    return "\n".join(lines)


def _classes(split: Mapping[str, Any]) -> str:
    merged = f" (every {split['merge']} as one)" if split["merge"] > 1 else ""
    validate = (
        f" and validate in {split['folds']} folds" if split["folds"] else f", {split['validation_classes']} validate"
    )
    return f"{split['train_classes']} classes train{merged}{validate}, {split['test_classes']} test"


def refuse_mixed(summaries: Sequence[Mapping[str, Any]]) -> None:
    """Different splits are never compared silently.

    Raises:
        Mistakes: the searches have not the same split.
    """
    digests = {summary["split"]["digest"] for summary in summaries}
    if len(digests) > 1:
        listed = "; ".join(f"{summary['name']}: {summary['split']['digest'][:12]}" for summary in summaries)
        raise Mistakes(
            f"These searches have different splits and cannot be compared ({listed}); compare searches of one split."
        )
