"""Report section: what the chosen models do with the test images."""

from collections.abc import Iterator
from dataclasses import replace

from search.plan.stored import StoredSearch
from search.report.drawing import Figure, Section
from search.report.pairs import class_scores, per_image_metrics
from search.report.ranked_test import RankedTest, ranked_test
from search.report.results import Comparison
from search.report.sections.model_classes import class_dots, class_values, hardest
from search.report.sections.model_curves import distances, precision_recall, roc
from search.report.sections.model_pictures import embedding_map, retrieval_gallery
from search.selection import NAME, Kind, Thumbnails
from trainables.metrics.table import is_retrieval


def models_section(stored: StoredSearch, comparison: Comparison) -> Section:
    """The test images as the models of one search see them, from what was kept when they were scored.

    What cannot be drawn, since the test classes are sealed or a file is gone, is said in ``missing``.
    """
    names = [summary.name for summary in comparison.searches]
    suffix = "" if len(names) == 1 else f"-{names.index(stored.name)}"
    name = f"models{suffix}"
    rows = [row for row in comparison.rows if row.search == stored.name]
    if not any(row.test for row in rows):
        return Section(
            name=name,
            title=_TITLE,
            missing=("The test classes are sealed: `holdout test` opens them, once the configurations are chosen.",),
        )
    try:
        test = ranked_test(stored.folder, rows)
    except FileNotFoundError as error:
        return Section(name=name, title=_TITLE, missing=(_gone(error),))
    assert test is not None, "a test without an opening"
    missing: list[str] = []
    curves = [precision_recall(comparison, test), roc(comparison, test), distances(comparison, test)]
    if not all(curves):
        missing.append("There are not all curves: they need two test classes, and one of them two images.")
    found = (
        *_of_pictures(comparison, test, missing),
        *filter(None, curves),
        *_of_classes(stored, comparison, test, missing),
    )
    return Section(
        name=name,
        title=_TITLE,
        sentences=(_told(test),),
        figures=tuple(replace(figure, name=figure.name + suffix) for figure in found),
        missing=tuple(missing),
    )


_TITLE = "What the models do"


def _told(test: RankedTest) -> str:
    models, configurations = sum(len(entry.models) for entry in test.configurations), len(test.configurations)
    return (
        f"How {models} models of {configurations} configuration{'s' * (configurations != 1)} rank the {len(test.keys)} "
        f"images of the {len(test.class_names)} test classes, as it was kept when they were scored; nothing was opened "
        "for this page."
    )


def _gone(error: FileNotFoundError) -> str:
    return (
        f"The file {error.filename} is not there: it was removed, or the test was scored before such files were kept. "
        "Restore it; a further opening would count."
    )


def _of_pictures(comparison: Comparison, test: RankedTest, missing: list[str]) -> Iterator[Figure]:
    """What shows test images; what there is not is added to ``missing``."""
    try:
        thumbnails = Thumbnails.read(test.folder / NAME)
    except FileNotFoundError as error:
        missing.append(_gone(error))
        return
    if thumbnails.metric is None:
        missing.append("No queries are shown: none of the test's metrics has a score for each image (metrics.test).")
    elif not thumbnails.queries:
        missing.append("No queries are shown: no test class has two images.")
    for kind in Kind:
        if gallery := retrieval_gallery(comparison, test, thumbnails, kind):
            yield gallery
    for entry in test.tuned:
        for method in ("t-SNE", "PCA"):
            if found := embedding_map(comparison, test, thumbnails, entry, method):
                yield found


def _of_classes(stored: StoredSearch, comparison: Comparison, test: RankedTest, missing: list[str]) -> Iterator[Figure]:
    """What has a value for each class; what there is not is added to ``missing``."""
    try:
        known = per_image_metrics([stored.folder])
        metric = next(
            (name for name in (comparison.objective, *comparison.test_metrics) if is_retrieval(name) and name in known),
            None,
        )
        scores = class_scores(stored.folder, metric) if metric else []
    except FileNotFoundError as error:
        missing.append(_gone(error))
        return
    if metric is None:
        missing.append("No classes are shown: none of the test's metrics has a score for each image (metrics.test).")
        return
    values = class_values([entry.row for entry in test.configurations], scores)
    if found := class_dots(comparison, metric, test.class_names, values):
        yield found
    else:
        missing.append("Default and tuned are not set against each other: the search chose the default of every loss.")
    if found := hardest(comparison, metric, test, values):
        yield found
