"""The comparison of losses: default and tuned, from the search to the test classes, in one table for all searches."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.anytime import curve_of
from search.openings import Ledger
from search.pairs import DEFAULT, TUNED, default_and_tuned, pairs_of
from search.runs import RunFolder, stored_split
from search.statistics.anytime import Curve, cost_ratio, mean_curve
from trainables.mistakes import Mistakes

SHARES = (0.25, 0.5, 0.75, 1.0)
"""Where an anytime curve is shown: after these shares of the epochs."""


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
    """Each loss's curves at a few places; where several searches have it, their mean and what each costs."""
    for loss in dict.fromkeys(loss for summary in summaries for loss in summary["losses"]):
        curves = {
            summary["name"]: curve_of(summary["losses"][loss])
            for summary in summaries
            if loss in summary["losses"] and summary["losses"][loss]["anytime"]
        }
        first = next(iter(curves), "")
        for search, curve in curves.items():
            steps = next(summary for summary in summaries if summary["name"] == search)["losses"][loss]["anytime"]
            yield {
                "search": search,
                "loss": loss,
                "places": [_place(curve, share, steps) for share in SHARES],
                "against": first if search != first else None,
                "cost_ratio": cost_ratio(curve, curves[first]) if search != first else None,
            }
        if len(curves) > 1:
            mean = mean_curve(list(curves.values()))
            places = [_place(mean, share, []) for share in SHARES]
            yield {"search": None, "loss": loss, "places": places, "against": None, "cost_ratio": None}


def _place(curve: Curve, share: float, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The curve after a share of its epochs, and the incumbent's confirmed mean where it is known."""
    epochs = math.ceil(share * len(curve))
    incumbent = [step for step in steps if step["epochs"] <= epochs]
    return {
        "epochs": epochs,
        "value": float(curve[epochs - 1]) if curve[epochs - 1] > -math.inf else None,
        "confirmed": incumbent[-1]["confirmed"] if incumbent else None,
    }
