"""A report: its sections, and the one file that shows them without anything from anywhere."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.pages.figure import Drawing, Photograph, Plot, Section

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent


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

    found = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
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
    return (_HERE / name).read_text()
