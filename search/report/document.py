"""The report of one or more searches as a single HTML file."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.plan.runs import RunFolder
from search.plan.stored import StoredSearch, stored_search
from search.report.comparison import compare
from search.report.drawing import Drawing, Photograph, Plot, Section
from search.report.results import Comparison, Summary
from search.report.sections.answer import again, answer
from search.report.sections.effort import effort
from search.report.sections.loss import loss_section
from search.report.sections.models import models_section
from search.report.sections.outcome import outcome
from search.report.summary import summary_so_far
from trainables.files import write_text

if TYPE_CHECKING:
    from jinja2 import Environment


# A report: its sections, and the one file that shows them without anything from anywhere.

_ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The ``sections`` of a report, in their order."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]


def as_html(report: Report) -> str:
    """The report as one HTML file that needs no other one, and no network."""
    plotted = any(isinstance(figure.picture, Plot) for part in report.sections for figure in part.figures)
    return (
        environment()
        .get_template("report.html")
        .render(
            report=report,
            style=shared_file("style.css"),
            scripts=[*([plotly_script()] if plotted else []), shared_file("page.js")],
        )
    )


@cache
def environment() -> "Environment":
    """The templates; all that they show is escaped but what we draw."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(loader=FileSystemLoader(_ASSETS), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    found.filters |= {"as_json": _as_json, "data_url": _data_url, "drawn_in": _drawn_in, "hash_source": _hash_source}
    return found


def _as_json(value: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element: no text in it ends the element."""
    from markupsafe import Markup

    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def _drawn_in(drawing: Drawing, figure: str) -> str:
    """The SVG whose parts are called after the figure: names are shared by all that is on a page."""
    from markupsafe import Markup

    svg = drawing.svg
    for name in set(re.findall(r'\bid="([^"]+)"', svg)):
        svg = re.sub(rf'(\bid="|"#|url\(#){re.escape(name)}(?=["\)])', rf"\g<1>{figure}-{name}", svg)
    return Markup(svg)


def _hash_source(script: str) -> str:
    """By which a content security policy knows ``script``, and lets no other one run, whatever gets into the page."""
    from markupsafe import Markup

    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")


def _data_url(photograph: Photograph) -> str:
    return f"data:{photograph.media_type};base64,{base64.b64encode(photograph.content).decode()}"


def plotly_script() -> str:
    """Plotly's script, which draws what a person hovers over."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def shared_file(name: str) -> str:
    """A style or script that every page has."""
    return (_ASSETS / name).read_text()


# The report of one search, or of several of one split.


def search_report(searches: Sequence[StoredSearch]) -> Report:
    """Everything that the searches' records say, as far as they have come.

    Raises:
        Mistakes: the searches have not the same split, test images or objective, or cannot be read.
    """
    folders = [search.folder for search in searches]
    summaries = [summary_so_far(search) for search in searches]
    comparison = compare(folders, summaries)
    losses = list(dict.fromkeys(loss for search in searches for loss in search.losses))
    return Report(
        title=", ".join(search.name for search in searches),
        subtitle=f"{', '.join(losses)}: tuned on validation classes by {comparison.objective}, compared on others",
        sections=(
            answer(comparison, folders),
            outcome(comparison),
            *_of_each(searches, summaries, comparison),
            effort(searches, summaries),
            again(searches),
        ),
    )


def _of_each(
    searches: Sequence[StoredSearch], summaries: Sequence[Summary], comparison: Comparison
) -> Iterator[Section]:
    """What only one search has: each loss, and what its models do."""
    for search, summary in zip(searches, summaries, strict=True):
        own = comparison if len(searches) == 1 else compare([search.folder], [summary])
        for section in (*(loss_section(search, summary, loss) for loss in search.losses), models_section(search, own)):
            yield section if len(searches) == 1 else _called_after(search.name, section)


def _called_after(search: str, section: Section) -> Section:
    """The section with names and titles that no other search's has."""
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", search)
    return replace(
        section,
        name=f"{prefix}-{section.name}",
        title=f"{search}: {section.title}",
        figures=tuple(replace(figure, name=f"{prefix}-{figure.name}") for figure in section.figures),
    )


def write_search_report(runs: Path, names: Sequence[str], file: Path | None = None) -> Path:
    """Write the report of the searches with these names below ``runs``, which share one split.

    Args:
        runs: the runs folder.
        names: one or more searches.
        file: where to write it; None: ``report.html`` in the folder of the first search.

    Raises:
        Mistakes: a search does not exist, they cannot be compared, or their records cannot be read.
    """
    text = as_html(search_report([stored_search(runs, name) for name in names]))
    file = file or RunFolder(runs, names[0]).report
    write_text(file, text)
    return file
