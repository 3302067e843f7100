"""The tournament of losses: their mean ranks, and how far apart two have to be."""

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.ink import COLOURS, FAINT
from search.report.statistics.contrasts import LEVEL
from search.report.statistics.tournament import Tournament
from search.report.tables.text_table import NOTHING, TextTable
from search.selection.role import Role


def ranks(tournament: Tournament, role: Role) -> Figure:
    """Each loss's ranks as ticks and their mean as a dot; the bar below is Nemenyi's critical difference."""
    standings = tournament.standings
    name = f"ranks-{role.value}"
    with drawn(name, 80 + 22 * len(standings)) as canvas:
        axes = canvas.axes
        for place, standing in enumerate(standings):
            axes.plot(standing.ranks, [place] * len(standing.ranks), "|", color=FAINT, markersize=8)
            axes.plot(standing.mean, place, "o", color=COLOURS[0], markersize=7)
        if tournament.critical_difference is not None:
            left = min(standing.mean for standing in standings)
            right = left + tournament.critical_difference
            axes.plot([left, right], [len(standings)] * 2, color=COLOURS[1], linewidth=3)
            axes.annotate("critical difference", (right, len(standings)), xytext=(4, -3), textcoords="offset points")
        axes.set_yticks(range(len(standings)), [standing.loss for standing in standings])
        axes.invert_yaxis()
        axes.set_xlabel(f"rank in each of {tournament.settings} settings (1 is best)", color=FAINT)
        axes.grid(axis="x")
    return Figure(
        name=name,
        title=f"Tournament, {role.value}",
        finding=_finding(tournament),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("loss", "ranks summed", "mean", "deviation"),
            rows=tuple(
                (
                    standing.loss,
                    f"{standing.total:g}",
                    f"{standing.mean:.2f}",
                    NOTHING if standing.std is None else f"{standing.std:.2f}",
                )
                for standing in standings
            ),
            labels=1,
            notes=(),
        ),
    )


def _finding(tournament: Tournament) -> str:
    first = tournament.standings[0]
    best = f"{first.loss} has the best mean rank, {first.mean:.2f} of {len(tournament.standings)}"
    if tournament.p is None:
        return f"{best}; {tournament.settings} settings cannot tell whether the losses differ."
    if tournament.p > LEVEL:
        return f"{best}, but any order is chance (Friedman's p {tournament.p:.3f})."
    return f"{best}; the losses differ (Friedman's p {tournament.p:.3f})."
