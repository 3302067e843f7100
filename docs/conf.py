"""Sphinx configuration for `make docs`."""

import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

sys.path.insert(0, str(Path(__file__).parent.parent))

from search import __version__

project = "Holdout"
author = "Holdout's authors"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = "Holdout"
html_extra_path = [page.name for page in Path(__file__).parent.glob("sample-report.html")]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False


def _read_google_style(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    # For a property, napoleon reads the text before a colon in the first line as its type and ignores sections. Reading
    # it as a function avoids both.
    # autodoc lists the attributes of a class already.
    config = Config(napoleon_use_ivar=True)
    lines[:] = GoogleDocstring(lines, config, what="function", name=name, obj=obj, options=options).lines()


def setup(app: Sphinx) -> None:
    """Read docstrings in Google style."""
    app.connect("autodoc-process-docstring", _read_google_style)
