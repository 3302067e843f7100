"""The tournament of losses: their mean ranks, and how far apart two have to be."""

from search.pages.drawing import drawn
from search.pages.figure import Figure
from search.pages.ink import COLOURS, FAINT
from search.report.statistics.contrasts import LEVEL
from search.report.statistics.tournament import Tournament
from search.report.tables.formats import RANKS, RANKS_BESIDE, ranks_beside
from search.report.tables.text_table import TextTable
from search.selection.role import Role


def ranks(tournament: Tournament, role: Role, published: Tournament | None) -> Figure:
    """Each loss's ranks as ticks and their mean as a dot; the bar below is Nemenyi's critical difference.

    A diamond is the mean rank that the ``published`` numbers give.
    """
    standings = tournament.standings
    printed = {standing.loss: standing for standing in published.standings} if published else {}
    name = f"ranks-{role.value}"
    with drawn(name, 80 + 22 * len(standings)) as canvas:
        axes = canvas.axes
        for place, standing in enumerate(standings):
            axes.plot(standing.ranks, [place] * len(standing.ranks), "|", color=FAINT, markersize=8)
            axes.plot(standing.mean, place, "o", color=COLOURS[0], markersize=7)
            if standing.loss in printed:
                axes.plot(printed[standing.loss].mean, place, "D", color=COLOURS[1], markersize=5)
        if tournament.critical_difference is not None:
            left = min(standing.mean for standing in standings)
            right = left + tournament.critical_difference
            axes.plot([left, right], [len(standings)] * 2, color=COLOURS[1], linewidth=3)
            axes.annotate("critical difference", (right, len(standings)), xytext=(4, -3), textcoords="offset points")
        axes.set_yticks(range(len(standings)), [standing.loss for standing in standings])
        axes.invert_yaxis()
        legend = "; diamond: published" if printed else ""
        axes.set_xlabel(f"rank in each of {tournament.settings} settings (1 is best){legend}", color=FAINT)
        axes.grid(axis="x")
    return Figure(
        name=name,
        title=f"Tournament, {role.value}",
        finding=_finding(tournament),
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("loss", *RANKS),
            rows=tuple((standing.loss, *ranks_beside(standing, printed.get(standing.loss))) for standing in standings),
            labels=1,
            notes=(RANKS_BESIDE,) if printed else (),
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
