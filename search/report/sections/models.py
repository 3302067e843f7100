"""The section on the chosen models and the test images."""

from collections.abc import Iterator
from dataclasses import replace

from search.plan.stored import StoredSearch
from search.report.compared import Comparison
from search.report.drawing import Figure, Section
from search.report.pairs import class_scores, per_image_metrics
from search.report.rankings import RankedTest, read_rankings
from search.report.sections.model_classes import class_dots, class_values, hardest
from search.report.sections.model_curves import distances, precision_recall
from search.report.sections.model_pictures import embedding_map, retrieval_gallery
from search.selection import NAME, ExampleKind, Thumbnails
from trainables.errors import counted
from trainables.metrics.table import is_retrieval


def models_section(stored: StoredSearch, comparison: Comparison) -> Section:
    """Return the figures of one search's models on the test images; ``comparison`` is that of the search alone.

    ``missing`` lists what cannot be drawn because the test classes are sealed or a file was removed.
    """
    empty = Section(name="models", title="Models on the test images")
    try:
        test = read_rankings(stored.folder, comparison.rows)
    except FileNotFoundError as error:
        return replace(empty, missing=(_removed(error),))
    if test is None:
        sealed = "The test classes are sealed; `holdout test` opens them after the choice."
        return replace(empty, pending=(sealed,))
    missing: list[str] = []
    remarks: list[str] = []
    curves = [precision_recall(comparison, test), distances(comparison, test)]
    if not all(curves):
        remarks.append("Some curves are not drawn: they need two test classes, one of them with two images.")
    figures = (
        *_of_pictures(comparison, test, missing, remarks),
        *filter(None, curves),
        *_of_classes(stored, comparison, test, missing, remarks),
    )
    return replace(
        empty,
        sentences=(_introduction(test),),
        figures=figures,
        remarks=tuple(remarks),
        missing=tuple(missing),
    )


def _introduction(test: RankedTest) -> str:
    models, configurations = sum(len(entry.models) for entry in test.configurations), len(test.configurations)
    return (
        f"Rankings of the {counted(len(test.keys), 'image')} of the {len(test.class_names)} test classes by "
        f"{counted(models, 'model')} of {counted(configurations, 'configuration')}, stored when they were scored. This "
        "report did not open the test classes."
    )


def _removed(error: FileNotFoundError) -> str:
    return (
        f"{error.filename} was removed, or is missing because an older version scored the test. Restore the file; "
        "scoring again would count as another opening."
    )


def _of_pictures(comparison: Comparison, test: RankedTest, missing: list[str], remarks: list[str]) -> Iterator[Figure]:
    """Yield the figures of test images; append what was removed to ``missing``, what cannot be to ``remarks``."""
    try:
        thumbnails = Thumbnails.read(test.folder / NAME)
    except FileNotFoundError as error:
        missing.append(_removed(error))
        return
    if thumbnails.metric is None:
        remarks.append("Queries are not shown: no metric of the test has a score per image (metrics.test).")
    elif not thumbnails.queries:
        remarks.append("Queries are not shown: no test class has two images.")
    for kind in ExampleKind:
        if gallery := retrieval_gallery(comparison, test, thumbnails, kind):
            yield gallery
    for entry in test.tuned:
        if found := embedding_map(comparison, test, thumbnails, entry):
            yield found


def _of_classes(
    stored: StoredSearch, comparison: Comparison, test: RankedTest, missing: list[str], remarks: list[str]
) -> Iterator[Figure]:
    """Yield the figures by class; append as :func:`_of_pictures`."""
    try:
        known = per_image_metrics([stored.folder])
        metric = next(
            (name for name in (comparison.objective, *comparison.test_metrics) if is_retrieval(name) and name in known),
            None,
        )
        scores = class_scores(stored.folder, metric) if metric else []
    except FileNotFoundError as error:
        missing.append(_removed(error))
        return
    if metric is None:
        remarks.append("Classes are not shown: no metric of the test has a score per image (metrics.test).")
        return
    values = class_values([entry.row for entry in test.configurations], scores)
    asked = scores[0].labels_C.tolist() if scores else []
    if found := class_dots(comparison, metric, [test.class_names[at] for at in asked], values):
        yield found
    else:
        remarks.append(
            "There is no picture of default against tuned by class: the search kept the default of every loss."
        )
    if found := hardest(comparison, metric, test, asked, values):
        yield found
