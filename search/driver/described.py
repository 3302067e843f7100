"""Runs and chosen models of a search as MLflow shows them."""

from collections.abc import Iterator
from pathlib import Path

from search.plan.runs import RunFolder
from search.report.comparison_tables import as_csv, text_tables
from search.report.formats import NO_DIFFERENCE, interval, parameters, verdict
from search.report.models import champion
from search.report.results import Comparison, LossSummary, Pair
from search.report.rows import COLUMNS, Column, Output, Row, SeedStatistics, mean_of
from search.report.text_table import TextTable, as_markdown, rows_as_markdown
from search.selection import Selection
from search.tracking import LOSS, SEARCH, DescribedModel, Registration, SummaryRun
from spaces.space import Value
from trainables.inference.model_files import CARD, DESCRIPTION

# The parent runs: one per search, and one per loss below it.

SHOWN = tuple(column for column in COLUMNS if Output.MLFLOW in column.outputs)
"""The columns of the result table in MLflow."""


def artifact_files(folder: RunFolder) -> list[Path]:
    """Return the existing files of a search that its run in MLflow keeps a copy of."""
    return [path for path in (folder.config, folder.split, folder.report) if path.exists()]


def search_run(comparison: Comparison, folder: RunFolder, description: str) -> SummaryRun:
    """Return the run of a search, from the ``comparison`` of it alone; ``description`` ends the run's description."""
    (summary,) = comparison.searches
    entries = summary.losses.values()
    return SummaryRun(
        description=f"{rows_as_markdown(_losses(comparison))}\n\n{description}",
        tags={"holdout.openings": comparison.openings},
        metrics={
            "trials/complete": sum(entry.trials.complete for entry in entries),
            "trials/pruned": sum(entry.trials.pruned for entry in entries),
            "trials/failed": sum(entry.trials.failed for entry in entries),
        },
        texts={"comparison.md": as_markdown(text_tables(comparison)), "comparison.csv": as_csv(comparison)},
        files=artifact_files(folder),
    )


def _losses(comparison: Comparison) -> TextTable:
    """Return the objective of each loss, and of its default in the last column: narrow enough for a description."""
    (summary,) = comparison.searches
    objective = comparison.objective
    headers = [column.header.format(gallery=comparison.split.gallery) for column in SHOWN]

    def mean(column: Column, row: Row) -> str:
        return column.text(mean_of(column.entry(row, objective)))

    return TextTable(
        title="",
        header=(objective, *headers, f"{headers[-1]} of default"),
        rows=tuple(
            (loss, *(mean(column, entry.tuned) for column in SHOWN), mean(SHOWN[-1], entry.default))
            for loss, entry in summary.losses.items()
        ),
        labels=1,
    )


def loss_run(comparison: Comparison, loss: str) -> SummaryRun:
    """Return the run of ``loss``, from the ``comparison`` of its search alone."""
    (summary,) = comparison.searches
    entry = summary.losses[loss]
    pairs = {
        _pair_tag(pair): (
            f"{pair.difference:+.4f} {interval(pair.ci95)}, p {pair.p_holm:.4f} (Holm): "
            f"{verdict(pair) or NO_DIFFERENCE}"
        )
        for pair in comparison.pairs
        if loss in (pair.first.loss, pair.second.loss)
    }
    return SummaryRun(
        description="\n\n".join(_sentences(entry)),
        tags={"holdout.openings": comparison.openings, **pairs},
        metrics=_metrics(comparison, entry),
        params=_chosen_params(entry),
    )


def _sentences(entry: LossSummary) -> Iterator[str]:
    if entry.tuned.params is not None:
        yield f"Trial {entry.tuned.number}: {parameters(entry.tuned.params)}."
    for finding in entry.diagnostics:
        yield f"{finding.sentence}."


def _pair_tag(pair: Pair) -> str:
    return ".".join(("holdout", "pair", pair.first.loss, pair.first.role, pair.second.loss, pair.second.role))


def _metrics(comparison: Comparison, entry: LossSummary) -> dict[str, float]:
    """Return the metrics by stage; MLflow groups its charts by the part before the slash."""
    objective = comparison.objective
    found: dict[str, float | None] = {}
    for column in SHOWN:
        for metric in column.metric_names(objective, comparison.test_metrics):
            value = column.entry(entry.tuned, metric)
            found[f"{column.key}/{metric}".rstrip("/")] = mean_of(value)
            if metric == objective and isinstance(value, SeedStatistics):
                found[f"{column.key}/{metric}_std"] = value.std
        name = column.key if column.metrics == "none" else f"{column.key}_{objective}"
        found[f"default/{name}"] = mean_of(column.entry(entry.default, objective))
    found |= {f"trials/{state}": count for state, count in entry.trials}
    return {name: value for name, value in found.items() if value is not None}


def _chosen_params(entry: LossSummary) -> dict[str, Value]:
    """Return the chosen hyperparameters; none before the choice."""
    return dict(entry.chosen.params or {}) if entry.chosen else {}


# The chosen models: their cards, with their test values.


def described_models(comparison: Comparison, folder: RunFolder) -> dict[str, DescribedModel]:
    """Return the models in ``folder`` by loss, from the ``comparison`` of its search alone."""
    (summary,) = comparison.searches
    found = {loss: folder.model(loss) for loss in summary.losses}
    return {
        loss: _described(comparison, folder, loss, path)
        for loss, path in found.items()
        if (path / DESCRIPTION).is_file()
    }


def _described(comparison: Comparison, folder: RunFolder, loss: str, path: Path) -> DescribedModel:
    (summary,) = comparison.searches
    entry = summary.losses[loss]
    scores = entry.tuned.test or {}
    test = {name: scores[name] for name in comparison.test_metrics if name in scores}
    return DescribedModel(
        folder=path,
        description=_without_head((path / CARD).read_text()),
        tags={
            SEARCH: summary.name,
            LOSS: loss,
            "holdout.split": summary.split.digest,
            "holdout.selection": Selection.load(folder.selection).digest,
            "holdout.openings": comparison.openings,
            **{f"holdout.test.{name}": _score(score) for name, score in test.items()},
        },
        metrics={f"test/{name}": score.mean for name, score in test.items()},
        params=_chosen_params(entry),
    )


def registration(comparison: Comparison, name: str) -> Registration:
    """Return the registration of a search's chosen models under ``name``, from the ``comparison`` of it alone."""
    (summary,) = comparison.searches
    best = champion(comparison)
    return Registration(
        name=name,
        description=(
            f"The chosen models of the search {summary.name}, one version per loss. The best on the test classes has "
            "the alias `champion` if it differs significantly from those of all other losses (a single loss: from its "
            "default), else `candidate`."
        ),
        best=best.loss,
        distinguishable=best.distinguishable,
    )


def _score(score: SeedStatistics) -> str:
    return f"{score.mean:.4f} {interval(score.ci95)}" if score.ci95 else f"{score.mean:.4f}"


def _without_head(card: str) -> str:
    """Return the card without the metadata of the Hugging Face Hub, which is not Markdown."""
    parts = card.split("---\n", 2)
    return parts[2].lstrip() if len(parts) == 3 and not parts[0] else card
