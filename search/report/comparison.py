"""The comparison of losses: default and tuned, from the search to the test classes, in one table for all searches."""

import itertools
from collections.abc import Iterator, Sequence

from search.plan.runs import RunFolder
from search.report.anytime import compared_curves
from search.report.pairs.comparable import comparable_rows
from search.report.pairs.pairs_of import default_and_tuned, pairs_of
from search.report.results.comparison import Comparison
from search.report.results.curves import ComparedCurve, SearchCurve
from search.report.results.row import Row
from search.report.results.summary import Summary
from search.report.seal.family import chosen_after_opening, family_of, shown_metrics
from search.report.seal.image_sets import openings_told, refuse_other_images, training_told
from search.selection.role import Role
from trainables.mistakes import Mistakes


def compare(folders: Sequence[RunFolder], summaries: Sequence[Summary]) -> Comparison:
    """The losses of several searches beside each other.

    Args:
        folders: the searches.
        summaries: their summaries, in the same order.

    Raises:
        Mistakes: the searches have not the same split, test images or objective.
    """
    refuse_mixed(summaries)
    refuse_other_images(folders)
    rows = [row for summary in summaries for row in rows_of(summary)]
    objective = summaries[0].objective
    computed = {name for row in rows for name in row.test or {}}
    metrics = shown_metrics(objective, computed)
    wanted = list(default_and_tuned(rows))
    tested, left_out = comparable_rows(folders, rows, metrics, itertools.chain.from_iterable(wanted))
    return Comparison(
        objective=objective,
        split=summaries[0].split,
        openings=openings_told(folders),
        warnings=(
            *training_told(folders),
            *chosen_after_opening(folders, family_of(rows, metrics), [row.key for row in rows if row.test]),
        ),
        test_metrics=tuple(metrics),
        rows=tuple(rows),
        pairs=tuple(pairs_of(tested, wanted)) if tested else (),
        left_out=tuple(left_out),
        anytime=tuple(_anytime(summaries)),
        searches=tuple(summaries),
    )


def refuse_mixed(summaries: Sequence[Summary]) -> None:
    """Different splits are never compared silently, nor values of different objectives or in different galleries.

    Raises:
        Mistakes: the searches have not the same split, objective or validation's gallery.
    """
    splits = {summary.name: summary.split.digest[:12] for summary in summaries}
    objectives = {summary.name: summary.objective for summary in summaries}
    galleries = {
        summary.name: "with half of the training images" if summary.split.training_half else "validation classes alone"
        for summary in summaries
    }
    for what, plural, values in (
        ("split", "splits", splits),
        ("objective", "objectives", objectives),
        ("validation's gallery", "galleries for the validation", galleries),
    ):
        if len(set(values.values())) > 1:
            listed = "; ".join(f"{name}: {value}" for name, value in values.items())
            raise Mistakes(
                f"These searches have different {plural} and cannot be compared ({listed}); compare searches of one "
                f"{what}."
            )


def rows_of(summary: Summary) -> Iterator[Row]:
    """Two rows a loss: what was configured, and its values from the search to the test."""
    for loss, entry in summary.losses.items():
        default, chosen, best = entry.default, entry.confirmed, entry.best
        yield Row(
            search=summary.name,
            loss=loss,
            role=Role.DEFAULT,
            number=0,
            params=default.params,
            search_value=default.value,
            confirmed=default.confirmed,
            final=default.final,
            test=default.test,
            test_small=default.test_small,
        )
        tuned = chosen or best
        yield Row(
            search=summary.name,
            loss=loss,
            role=Role.TUNED,
            number=tuned.number if tuned else None,
            params=tuned.params if tuned else None,
            search_value=chosen.search_value if chosen else best.value if best else None,
            confirmed=chosen,
            final=entry.final,
            test=entry.test,
            test_small=entry.test_small,
        )


def _anytime(summaries: Sequence[Summary]) -> Iterator[SearchCurve]:
    """Each loss's curves beside each other; where several searches have it, their mean as well."""
    for loss in dict.fromkeys(loss for summary in summaries for loss in summary.losses):
        by_search = {summary.name: [summary.losses[loss]] for summary in summaries if loss in summary.losses}
        curves = compared_curves(loss, by_search)
        for search, curve in curves.items():
            yield _of_search(search, curve)
        if len(curves) > 1:
            entries = [entry for found in by_search.values() for entry in found]
            (mean,) = compared_curves(loss, {"mean": entries}).values()
            yield _of_search(None, mean)


def _of_search(search: str | None, curve: ComparedCurve) -> SearchCurve:
    return SearchCurve(
        search=search,
        loss=curve.loss,
        points=curve.points,
        against=curve.against,
        cost_ratio=curve.cost_ratio,
    )
