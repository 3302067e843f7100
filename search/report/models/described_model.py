"""The chosen models of a search as MLflow shows them: their cards, with what the test said of them."""

from pathlib import Path

from search.plan.runs import RunFolder
from search.report.models.champion import champion
from search.report.results.comparison import Comparison
from search.report.results.seed_statistics import SeedInterval
from search.report.tables.formats import interval
from search.selection.selection import Selection
from search.tracking.described import DescribedModel, Registration
from search.tracking.tags import LOSS, SEARCH
from trainables.inference.model_folder import CARD, DESCRIPTION


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
