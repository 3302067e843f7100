"""The comparison as text_tables of text, which a terminal, Markdown and LaTeX show alike."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search.report.anytime import SHARES
from search.report.noise import noise_text
from search.report.pairs import DEFAULT
from search.report.statistics.bootstrap import DRAWS

NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text. The first ``labels`` columns name a row; a cell may have several lines."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int
    notes: tuple[str, ...]


def text_tables(comparison: Mapping[str, Any]) -> list[TextTable]:
    """The losses, the pairs where there are any, and the anytime curves where an epoch was trained."""
    found = [_losses(comparison), _pairs(comparison), _anytime(comparison)]
    return [text_table for text_table in found if text_table.rows or text_table.notes]


def _losses(comparison: Mapping[str, Any]) -> TextTable:
    objective, metrics = comparison["objective"], comparison["test_metrics"]
    return TextTable(
        title=f"{', '.join(summary['name'] for summary in comparison['searches'])}: losses, default and tuned",
        header=(
            "loss",
            "trial",
            *(f"{objective}\n{stage}" for stage in ("search", "confirmed", "final")),
            *(f"{name}\ntest" for name in metrics or [objective]),
        ),
        rows=tuple(
            (
                _label(comparison, row),
                _trial(comparison, row),
                NOTHING if row["search_value"] is None else f"{row['search_value']:.4f}",
                spread(row["confirmed"]),
                spread(row["final"]),
                *([spread((row["test"] or {}).get(name)) for name in metrics] or ["sealed"]),
            )
            for row in comparison["rows"]
        ),
        labels=2,
        notes=tuple(_notes(comparison)),
    )


def spread(entry: Mapping[str, Any] | None) -> str:
    """Mean ± sample deviation, and the 95 % interval below where there is one."""
    if not entry:
        return NOTHING
    text = f"{entry['mean']:.4f}" if entry["std"] is None else f"{entry['mean']:.4f} ± {entry['std']:.4f}"
    return f"{text}\n{interval(entry['ci95'])}" if entry.get("ci95") else text


def interval(ends: Sequence[float]) -> str:
    """An interval in words of mathematics."""
    return f"[{ends[0]:.4f}, {ends[1]:.4f}]"


def _label(comparison: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if len(comparison["searches"]) == 1:
        return str(row["loss"])
    return f"{row['search'] or 'mean'}/{row['loss']}"


def _trial(comparison: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if row["role"] != DEFAULT:
        if row["number"] is None:
            return "none finished"
        return "default is best" if row["number"] == 0 else f"{row['number']}, tuned"
    (summary,) = [summary for summary in comparison["searches"] if summary["name"] == row["search"]]
    return "0, default clipped" if summary["losses"][row["loss"]]["default"]["clipped"] else "0, default"


def _notes(comparison: Mapping[str, Any]) -> Iterator[str]:
    for summary in comparison["searches"]:
        for loss, entry in summary["losses"].items():
            label = _label(comparison, {"search": summary["name"], "loss": loss})
            chosen, trials = entry["confirmed"] or entry["best"], entry["trials"]
            counts = f"{trials['complete']} complete, {trials['pruned']} pruned, {trials['failed']} failed"
            yield f"{label}: {parameters(chosen['params']) if chosen else 'no trial finished'} ({counts})"
            for sentence in filter(None, (entry["ended_early"], *(each["sentence"] for each in entry["diagnostics"]))):
                yield f"{label}: {sentence}"
        if summary["noise"]:
            yield noise_text(summary["noise"], comparison["objective"])
    split = comparison["split"]
    folds = split["folds"]
    yield f"split {split['digest'][:12]}: {_classes(split)}; {comparison['openings']}"
    yield (
        "search: one run, or the mean of equal ones; confirmed, final (validation of the trainings for the test): "
        f"mean ± sample deviation over seeds{' and folds' if folds else ''}; test: with the 95 % interval "
        f"(Student's t{' over the seeds, each the mean of its folds' if folds else ''})"
    )


def _classes(split: Mapping[str, Any]) -> str:
    merged = f" (every {split['merge']} as one)" if split["merge"] > 1 else ""
    validate = (
        f" and validate in {split['folds']} folds" if split["folds"] else f", {split['validation_classes']} validate"
    )
    return f"{split['train_classes']} classes train{merged}{validate}, {split['test_classes']} test"


def parameters(params: Mapping[str, Any]) -> str:
    """Hyperparameters in a line."""
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in params.items()
    )


def _pairs(comparison: Mapping[str, Any]) -> TextTable:
    pairs = comparison["pairs"]
    notes = list(comparison["left_out"])
    if pairs:
        notes.append(
            f"paired bootstrap over test classes and final seeds ({DRAWS:,} draws) and paired t over the seeds, the "
            f"larger p and the wider interval of the two; Holm: corrected over {len(pairs)} "
            f"pair{'s' if len(pairs) > 1 else ''}; neither the choice of hyperparameters nor the validation split is "
            "covered"
        )
    return TextTable(
        title=f"Differences of {pairs[0]['metric']} on the test classes"
        if pairs
        else "Differences on the test classes",
        header=("pair", "difference", "95 % interval", "p", "p (Holm)", ""),
        rows=tuple(
            (
                pair_name(comparison, pair),
                f"{pair['difference']:+.4f}",
                interval(pair["ci95"]),
                f"{pair['p']:.4f}",
                f"{pair['p_holm']:.4f}",
                verdict(pair),
            )
            for pair in pairs
        ),
        labels=1,
        notes=tuple(notes),
    )


def pair_name(comparison: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    """The two rows of a pair; a default is only ever paired with its own loss."""
    first, second = (dict(zip(("search", "loss", "role"), pair[end], strict=True)) for end in ("first", "second"))
    other = "its default" if second["role"] == DEFAULT else _label(comparison, second)
    return f"{_label(comparison, first)} − {other}"


def verdict(pair: Mapping[str, Any]) -> str:
    """What a pair came to, in words."""
    if not pair["differ"]:
        return "indistinguishable at this budget"
    return "higher" if pair["difference"] > 0 else "lower"


def _anytime(comparison: Mapping[str, Any]) -> TextTable:
    curves = [(_label(comparison, curve), curve) for curve in comparison["anytime"]]
    return anytime_table(comparison["objective"], curves, "{:.4f}".format)


def anytime_table(
    objective: str, curves: Sequence[tuple[str, Mapping[str, Any]]], number: Callable[[float], str]
) -> TextTable:
    """Curves beside each other, each with its name and its values as ``number`` writes them."""
    notes = ["below a value: the mean that its configuration was confirmed with, where it was"] if curves else []
    for name, curve in curves:
        if curve["against"]:
            ratio = curve["cost_ratio"]
            reached = "does not reach" if ratio is None else f"takes {ratio:.2f} × the epochs to reach"
            notes.append(f"{name} {reached} the best value of {curve['against']}/{curve['loss']}")
    return TextTable(
        title=f"Best {objective} so far, by the epochs spent",
        header=("loss", *(f"{share:.0%} of the epochs" for share in SHARES)),
        rows=tuple((name, *(_place(place, number) for place in curve["places"])) for name, curve in curves),
        labels=1,
        notes=tuple(notes),
    )


def _place(place: Mapping[str, Any], number: Callable[[float], str]) -> str:
    if place["value"] is None:
        return NOTHING
    text = f"{number(place['value'])} after {place['epochs']}"
    return text if place["confirmed"] is None else f"{text}\n{number(place['confirmed'])} confirmed"
