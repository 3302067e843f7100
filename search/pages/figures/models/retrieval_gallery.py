"""Queries with what the models find for them."""

import numpy as np

from search.pages.figure import Figure
from search.pages.figures.models.mosaic import Mosaic
from search.pages.figures.models.seed_lines import configuration_labels
from search.pages.ink import BAD, GOOD
from search.report.models.ranked_test import RankedTest
from search.report.results.comparison import Comparison
from search.report.tables.text_table import TextTable
from search.selection.role import Role
from search.selection.scores.gallery import Kind
from search.selection.scores.thumbnails import Thumbnails

TITLES = {
    Kind.BEST: "Queries that are found best",
    Kind.MEDIAN: "Queries in the middle",
    Kind.WORST: "Queries that are found worst",
    Kind.CHANGED: "Queries that tuning changed most",
}
_QUERY, _SIDE, _LABEL, _GAP = 72, 44, 150, 4
_CAPTION = 18


def retrieval_gallery(comparison: Comparison, test: RankedTest, thumbnails: Thumbnails, kind: Kind) -> Figure | None:
    """The queries of one kind, each with its nearest images by the first model of every configuration.

    None where there are no such queries.
    """
    queries = [query.row for query in thumbnails.queries if query.kind is kind]
    if not queries:
        return None
    shown = test.configurations
    labels = configuration_labels(comparison, shown)
    row_of = {int(row): place for place, row in enumerate(shown[0].first.queries_Q)}
    found = {
        (query, place): entry.first.neighbours_QK[row_of[query]].tolist()
        for query in queries
        for place, entry in enumerate(shown)
    }
    step = _SIDE + _GAP
    block = max(len(shown) * step, _QUERY) + _CAPTION + 12
    left = _QUERY + _GAP + _LABEL
    ranks = shown[0].first.neighbours_QK.shape[1]
    mosaic = Mosaic(left + ranks * step, len(queries) * block, thumbnails.pictures)
    for position, query in enumerate(queries):
        top = position * block
        mosaic.text((0, top), f"{test.class_of(query)}  ({test.keys[query]})", 12, room=left + ranks * step)
        mosaic.paste(query, (0, top + _CAPTION), _QUERY)
        for place, label in enumerate(labels):
            line = top + _CAPTION + place * step
            mosaic.text((_QUERY + 2 * _GAP, line + _SIDE // 2 - 7), label, 11, room=_LABEL - 2 * _GAP)
            for rank, image in enumerate(found[query, place]):
                corner = (left + rank * step, line)
                right = test.labels_N[image] == test.labels_N[query]
                colour = GOOD if right else BAD
                mosaic.paste(image, corner, _SIDE)
                mosaic.frame(corner, _SIDE, colour, 3)
                mosaic.mark((corner[0] + _SIDE - 14, line + _SIDE - 14), colour, right=bool(right))
    rights = [
        float(np.mean([np.sum(test.labels_N[found[query, place]] == test.labels_N[query]) for query in queries]))
        for place in range(len(shown))
    ]
    return Figure(
        name=f"gallery-{kind}",
        title=TITLES[kind],
        finding=_finding(test, thumbnails, kind, rights, ranks, len(queries)),
        picture=mosaic.photograph(),
        table=TextTable(
            title="",
            header=("query", "class", "configuration", "right", f"classes of the {ranks} nearest"),
            rows=tuple(
                (
                    test.keys[query],
                    test.class_of(query),
                    label,
                    str(sum(test.labels_N[image] == test.labels_N[query] for image in found[query, place])),
                    ", ".join(test.class_of(image) for image in found[query, place]),
                )
                for query in queries
                for place, label in enumerate(labels)
            ),
            labels=3,
            notes=("Of each configuration its first model; the nearest image first.",),
        ),
        wide=True,
    )


def _finding(
    test: RankedTest, thumbnails: Thumbnails, kind: Kind, rights: list[float], ranks: int, queries: int
) -> str:
    by_role = {
        role: [right for entry, right in zip(test.configurations, rights, strict=True) if entry.row.role is role]
        for role in Role
    }
    said = [f"{np.mean(found):.1f} of {ranks} by {role} models" for role, found in by_role.items() if found]
    chosen = "whose score changed most" if kind is Kind.CHANGED else f"with the {kind} score"
    return (
        f"Of the images nearest to the {queries} queries {chosen} ({thumbnails.metric}), on average "
        f"{', '.join(reversed(said))} are of the query's class."
    )
