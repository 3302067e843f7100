"""The card of a model: what it is, what it was trained and tested on, and how it was chosen, in Markdown.

Its head is that of the Hugging Face Hub's model cards, so that it can be published as it is.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from search import __version__
from search.report.results.comparison import Comparison
from search.report.results.loss_summary import LossSummary
from search.report.results.scored_openings import ScoredModel
from search.report.results.seed_statistics import SeedInterval
from search.report.tables.formats import interval, parameters
from search.report.tables.markdown import rows_as_markdown
from search.report.tables.text_table import NOTHING, TextTable
from search.selection.selection import Selection
from trainables.inference.embedder_spec import EmbedderSpec

if TYPE_CHECKING:
    from jinja2 import Template


def model_card(
    comparison: Comparison,
    selection: Selection,
    loss: str,
    spec: EmbedderSpec,
    scored: ScoredModel | None,
    programs: str = "",
) -> str:
    """The card of the chosen model of ``loss``.

    Args:
        comparison: of its search alone.
        selection: that of the search.
        loss: its loss.
        spec: the network.
        scored: its own scores on the test classes; None where it has none.
        programs: a table of its further files, in Markdown.
    """
    dataset = spec.origin["dataset"]
    entry = comparison.searches[0].losses[loss]
    chosen = selection.chosen[loss]
    return _template().render(
        head=_head(comparison, loss, entry, dataset),
        comparison=comparison,
        selection=selection,
        loss=loss,
        spec=spec,
        dataset=dataset,
        version=__version__,
        parameters=parameters(chosen.params) or "without hyperparameters",
        programs=programs,
        weights=_weights(spec),
        trials=_trials(entry),
        confirmed=_confirmed(comparison, entry),
        scores=rows_as_markdown(_scores(comparison, entry, scored)) if scored and entry.test else "",
    )


@cache
def _template() -> "Template":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(  # Markdown: nothing in it is HTML, and what a user named is checked before
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["capitalised"] = lambda text: text[:1].upper() + text[1:]
    return environment.get_template("card.md")


def _head(comparison: Comparison, loss: str, entry: LossSummary, dataset: str) -> str:
    """What the hub reads: the metrics are means over seeds, on the test classes."""
    results = [
        {"type": name, "name": f"{name}, mean over seeds", "value": statistics.mean}
        for name, statistics in (entry.test or {}).items()
        if name in comparison.test_metrics
    ]
    head: dict[str, Any] = {
        "library_name": "holdout",
        "pipeline_tag": "image-feature-extraction",
        "tags": ["metric-learning", "image-retrieval", loss],
    }
    if results:
        task = {"type": "image-retrieval", "name": "Image retrieval among unseen classes"}
        data = {"name": dataset, "type": dataset, "split": f"test classes, split {comparison.split.digest[:12]}"}
        name = f"{comparison.searches[0].name}-{loss}"
        head["model-index"] = [{"name": name, "results": [{"task": task, "dataset": data, "metrics": results}]}]
    text: str = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    return text


def _weights(spec: EmbedderSpec) -> str:
    weights = spec.origin["initial_weights"]
    return "random weights" if weights is None else f"the weights `{Path(weights).name}`"


def _trials(entry: LossSummary) -> str:
    count = entry.trials.complete + entry.trials.pruned + entry.trials.failed
    return f"{count} configurations were tried, {entry.trials.complete} of them to their end."


def _confirmed(comparison: Comparison, entry: LossSummary) -> str:
    if entry.confirmed is None:
        return ""
    values = entry.confirmed.values
    return (
        f"With {len(values)} fresh seeds it came to {entry.confirmed.mean:.4f} of {comparison.objective} on the "
        f"{comparison.split.validation_classes} validation classes."
    )


def _scores(comparison: Comparison, entry: LossSummary, scored: ScoredModel) -> TextTable:
    default = entry.default.test or {}
    return TextTable(
        title="",
        header=("metric", "mean over seeds", "95 % interval", "this model", "papers' default, mean"),
        rows=tuple(
            (name, *_cells(entry.test or {}, name), f"{scored.metrics[name]:.4f}", _cells(default, name)[0])
            for name in comparison.test_metrics
        ),
        labels=1,
    )


def _cells(test: Mapping[str, SeedInterval], name: str) -> tuple[str, str]:
    if name not in test:
        return NOTHING, NOTHING
    found = test[name]
    return f"{found.mean:.4f}", interval(found.ci95) if found.ci95 else NOTHING
