"""Parent runs and chosen models as MLflow shows them."""

from collections.abc import Iterator
from pathlib import Path

from search.plan.runs import RunFolder
from search.report.comparison_tables import as_csv, text_tables
from search.report.formats import NO_DIFFERENCE, interval, parameters, verdict
from search.report.models import champion
from search.report.results import Comparison, LossSummary, Pair, SeedInterval, SeedStatistics
from search.report.text_table import NOTHING, TextTable, as_markdown, rows_as_markdown
from search.selection import Selection
from search.tracking import LOSS, SEARCH, DescribedModel, Registration, SummaryRun
from trainables.inference.model_files import CARD, DESCRIPTION

# What the runs in MLflow show that sum up others: a loss's, and the search's.


def artifact_files(folder: RunFolder) -> list[Path]:
    """The files of a search that its run in MLflow keeps a copy of, those of them that are there."""
    return [path for path in (folder.config, folder.split, folder.report) if path.exists()]


def search_run(comparison: Comparison, folder: RunFolder, description: str) -> SummaryRun:
    """What the run of a search shows, from the ``comparison`` of it alone, above what its ``description`` says."""
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


def loss_run(comparison: Comparison, loss: str) -> SummaryRun:
    """What the run of ``loss`` shows, from the ``comparison`` of its search alone: the objective after each stage."""
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
        metrics=_metrics(comparison, loss),
        params=entry.confirmed.params if entry.confirmed else {},
    )


def _losses(comparison: Comparison) -> TextTable:
    """The objective of each loss after each stage, and of its default at the end: narrow enough for a description."""
    (summary,) = comparison.searches
    objective = comparison.objective
    return TextTable(
        title="",
        header=(objective, "search", "confirmed", "test", "test of default"),
        rows=tuple(
            (
                loss,
                *(_number(value) for value in (_search_value(entry), _mean(entry.confirmed))),
                *(_number(_mean((tested or {}).get(objective))) for tested in (entry.test, entry.default.test)),
            )
            for loss, entry in summary.losses.items()
        ),
        labels=1,
        notes=(),
    )


def _search_value(entry: LossSummary) -> float | None:
    if entry.confirmed:
        return entry.confirmed.search_value
    return entry.best.value if entry.best else None


def _mean(values: SeedStatistics | None) -> float | None:
    return values.mean if values else None


def _std(values: SeedStatistics | None) -> float | None:
    return values.std if values else None


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _sentences(entry: LossSummary) -> Iterator[str]:
    chosen = entry.confirmed or entry.best
    if chosen:
        yield f"Trial {chosen.number}: {parameters(chosen.params)}."
    for finding in entry.diagnostics:
        yield f"{finding.sentence}."


def _pair_tag(pair: Pair) -> str:
    return ".".join(("holdout", "pair", pair.first.loss, pair.first.role, pair.second.loss, pair.second.role))


def _metrics(comparison: Comparison, loss: str) -> dict[str, float]:
    """By stage, which is before the slash: MLflow makes a group of charts of it."""
    entry, objective = comparison.searches[0].losses[loss], comparison.objective
    default, test, default_test = entry.default, entry.test or {}, entry.default.test or {}
    metrics: dict[str, float | None] = {
        f"search/{objective}": _search_value(entry),
        f"confirmed/{objective}": _mean(entry.confirmed),
        f"confirmed/{objective}_std": _std(entry.confirmed),
        **{f"test/{name}": _mean(test.get(name)) for name in comparison.test_metrics},
        f"test/{objective}_std": _std(test.get(objective)),
        f"default/search_{objective}": default.value,
        f"default/confirmed_{objective}": _mean(default.confirmed),
        f"default/test_{objective}": _mean(default_test.get(objective)),
        "trials/complete": entry.trials.complete,
        "trials/pruned": entry.trials.pruned,
        "trials/failed": entry.trials.failed,
    }
    return {name: value for name, value in metrics.items() if value is not None}


# The chosen models of a search as MLflow shows them: their cards, with what the test said of them.


def described_models(comparison: Comparison, folder: RunFolder) -> dict[str, DescribedModel]:
    """The models that lie in ``folder``, by loss, from the ``comparison`` of its search alone."""
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
    test = {name: entry.test[name] for name in comparison.test_metrics if name in entry.test} if entry.test else {}
    return DescribedModel(
        folder=path,
        description=_without_head((path / CARD).read_text()),
        tags={
            SEARCH: summary.name,
            LOSS: loss,
            "holdout.split": summary.split.digest,
            "holdout.selection": Selection.load(folder.selection).digest,
            "holdout.openings": comparison.openings,
            **{f"holdout.test.{name}": _said(statistics) for name, statistics in test.items()},
        },
        metrics={f"test/{name}": statistics.mean for name, statistics in test.items()},
        params=entry.confirmed.params if entry.confirmed else {},
    )


def registration(comparison: Comparison, name: str) -> Registration:
    """How the models of a search that has chosen are registered under ``name``; the ``comparison`` is of it alone."""
    (summary,) = comparison.searches
    best = champion(comparison)
    return Registration(
        name=name,
        description=(
            f"The chosen models of the search {summary.name}, a version a loss. The alias is `champion` on the best on "
            "the test classes where it can be told from every other loss's (a single one's from its default), else "
            "`candidate`."
        ),
        best=best.loss,
        distinguishable=best.distinguishable,
    )


def _said(test: SeedInterval) -> str:
    return f"{test.mean:.4f} {interval(test.ci95)}" if test.ci95 else f"{test.mean:.4f}"


def _without_head(card: str) -> str:
    """The card without what the Hugging Face Hub reads of it, which is no Markdown."""
    parts = card.split("---\n", 2)
    return parts[2].lstrip() if len(parts) == 3 and not parts[0] else card
