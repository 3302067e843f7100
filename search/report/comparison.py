"""The comparison of losses: default and tuned, from the search to the test classes, in one table for all searches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.plan.runs import RunFolder, stored_split
from search.report.anytime import compared_curves
from search.report.pairs import DEFAULT, TUNED, default_and_tuned, pairs_of
from search.selection.openings import Ledger
from trainables.mistakes import Mistakes


def compare(folders: Sequence[RunFolder], summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that a comparison says, as JSON.

    Args:
        folders: the searches.
        summaries: their ``summary.json``, in the same order.

    Raises:
        Mistakes: the searches have not the same split or objective.
    """
    refuse_mixed(summaries)
    rows = [row for summary in summaries for row in rows_of(summary)]
    objective = summaries[0]["objective"]
    computed = {name for row in rows for name in row["test"] or {}}
    metrics = [name for name in dict.fromkeys((objective, "recall_at_1")) if name in computed]
    pairs, left_out = pairs_of(folders, rows, metrics, list(default_and_tuned(rows)))
    return {
        "objective": objective,
        "split": summaries[0]["split"],
        "openings": Ledger(folders[0].openings).sentence(stored_split(folders[0]).test_digest),
        "test_metrics": metrics,
        "rows": rows,
        "pairs": pairs,
        "left_out": left_out,
        "anytime": list(_anytime(summaries)),
        "searches": list(summaries),
    }


def refuse_mixed(summaries: Sequence[Mapping[str, Any]]) -> None:
    """Different splits are never compared silently, nor values of different objectives.

    Raises:
        Mistakes: the searches have not the same split, or not the same objective.
    """
    splits = {summary["name"]: summary["split"]["digest"][:12] for summary in summaries}
    objectives = {summary["name"]: summary["objective"] for summary in summaries}
    for what, values in (("split", splits), ("objective", objectives)):
        if len(set(values.values())) > 1:
            listed = "; ".join(f"{name}: {value}" for name, value in values.items())
            raise Mistakes(
                f"These searches have different {what}s and cannot be compared ({listed}); compare searches of one "
                f"{what}."
            )


def rows_of(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Two rows a loss: what was configured, and its values from the search to the test."""
    for loss, entry in summary["losses"].items():
        default, confirmed, best = entry["default"], entry["confirmed"], entry["best"]
        tuned = confirmed or best or {"number": None, "params": None, "value": None}
        for role, found, row in (
            (DEFAULT, default, {"number": 0, "params": default["params"], "search_value": default["value"]}),
            (TUNED, entry, {**tuned, "search_value": confirmed["search_value"] if confirmed else tuned["value"]}),
        ):
            yield {
                "search": summary["name"],
                "loss": loss,
                "role": role,
                **{key: row[key] for key in ("number", "params", "search_value")},
                **{stage: found[stage] for stage in ("confirmed", "final", "test")},
            }


def _anytime(summaries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each loss's curves beside each other; where several searches have it, their mean as well."""
    for loss in dict.fromkeys(loss for summary in summaries for loss in summary["losses"]):
        by_search: dict[str | None, list[Mapping[str, Any]]] = {
            summary["name"]: [summary["losses"][loss]] for summary in summaries if loss in summary["losses"]
        }
        curves = compared_curves(by_search)
        if len(curves) > 1:
            curves |= compared_curves({None: [entry for found in by_search.values() for entry in found]})
        for search, curve in curves.items():
            yield {"search": search, "loss": loss, **curve}
