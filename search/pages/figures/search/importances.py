"""Which hyperparameters matter."""

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.figures.search.searched import SearchedLoss
from search.pages.ink import COLOURS, FAINT, INK
from search.report.tables.text_table import TextTable


def importances(searched: SearchedLoss) -> Figure | None:
    """The share of each hyperparameter in what makes a trial one of the better half; None with too few trials.

    At each rung, and at the end, all trials that reached it are compared by their values there: a rung's shares count
    as often as trials reached it. :func:`search.report.diagnostics.importances.importances` computes them.
    """
    found = searched.importances
    if found is None or len(found.shares) < 2:
        return None
    name, shares = f"{searched.name}-importances", found.shares
    with drawn(name, 50 + 22 * len(shares)) as canvas:
        axes = canvas.axes
        bars = axes.barh(range(len(shares)), list(shares.values()), color=COLOURS[0])
        axes.bar_label(bars, [f"{share:.0%}" for share in shares.values()], padding=3, color=INK)
        axes.set_yticks(range(len(shares)), list(shares))
        axes.invert_yaxis()
        axes.set_xlabel("share in what makes a trial better than half (PED-ANOVA)", color=FAINT)
        axes.set_xlim(0, 1.1 * max(shares.values()))
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.grid(axis="x")
    first, second = list(shares)[:2]
    unit = searched.pruner.unit
    looked_at = ", ".join(f"{count} after {unit} {rung}" for rung, count in found.rungs.items())
    return Figure(
        name=name,
        title="Which hyperparameters matter",
        finding=f"{first} matters most with {shares[first]:.0%}, then {second} with {shares[second]:.0%}, by the "
        f"values of all trials at the same rungs ({looked_at}).",
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("hyperparameter", "share"),
            rows=tuple((name, f"{share:.3f}") for name, share in shares.items()),
            labels=1,
            notes=("of few trials this is rough: where nothing matters, the first of four comes to 50% by chance",),
        ),
    )
