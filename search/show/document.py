"""The report of one or more searches as a self-contained HTML file."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from search.records.records import Records
from search.results.comparison import Comparison, compare, comparison_of
from search.show.drawing import Plot, Section
from search.show.sections.answer import again, answer, outcome
from search.show.sections.loss import loss_section
from search.show.sections.models import models_section
from trainables.common.errors import listed
from trainables.common.files import reading, write_text

if TYPE_CHECKING:
    from jinja2 import Environment

_ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """A title and the ``sections`` of a report, in order."""

    title: str
    subtitle: str
    sections: tuple[Section, ...]


def as_html(report: ReportPage) -> str:
    """Render a report as one HTML file that loads nothing else."""
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
    """Return the templates; everything except our own drawings is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(loader=FileSystemLoader(_ASSETS), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    found.filters |= {
        "as_json": _as_json,
        "breakable": _breakable,
        "data_url": lambda webp: f"data:image/webp;base64,{base64.b64encode(webp).decode()}",
        "hash_source": _hash_source,
        "with_code": lambda text: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))),
    }
    return found


def _as_json(value: Mapping[str, Any]) -> str:
    """Return JSON for a script element, with ``<`` escaped so that no text can end the element."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def _breakable(text: str) -> str:
    """Return an escaped text that may continue on the next line after an underscore or slash."""
    return Markup(re.sub(r"([_/])(?=\w)", r"\1<wbr>", str(escape(text))))


def _hash_source(script: str) -> str:
    """Return the hash that lets a content security policy allow this ``script`` and no other."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")


@cache
def plotly_script() -> str:
    """Return Plotly's script, which draws the interactive pictures."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@cache
def shared_file(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def search_report(searches: Sequence[Records]) -> ReportPage:
    """Build the report of searches that share one split, finished or not."""
    comparison = compare(searches) if len(searches) > 1 else comparison_of(searches[0])
    losses = list(dict.fromkeys(loss for search in searches for loss in search.losses))
    return ReportPage(
        title=", ".join(search.name for search in searches),
        subtitle=f"{', '.join(losses)}: tuned by {comparison.objective} on validation classes, tested on others",
        sections=(
            answer(comparison),
            outcome(comparison, searches),
            *_of_each(searches, comparison),
            again(searches),
        ),
    )


def _of_each(searches: Sequence[Records], comparison: Comparison) -> Iterator[Section]:
    """Yield the sections of each search; those of several get names and titles that are unique among the searches."""
    for search, summary in zip(searches, comparison.searches, strict=True):
        prefix = re.sub(r"[^A-Za-z0-9]+", "-", search.name)
        for section in (*(loss_section(search, summary, loss) for loss in search.losses), models_section(search)):
            if len(searches) == 1:
                yield section
                continue
            yield replace(
                section,
                name=f"{prefix}-{section.name}",
                title=f"{search.name}: {section.title}",
                figures=tuple(replace(figure, name=f"{prefix}-{figure.name}") for figure in section.figures),
            )


def write_search_report(searches: Sequence[Records], file: Path | None = None) -> Path:
    """Write the report of searches that share one split to ``file``, by default ``report.html`` of the first one."""
    with reading(f"A record of {listed([search.name for search in searches])}"):
        text = as_html(search_report(searches))
    file = file or searches[0].folder.report
    write_text(file, text)
    return file
