"""The pictures of the pages, from the reports of finished searches.

``make pictures RUNS=runs NAME=groceries`` redraws the report of the search ``groceries`` (the README's, from
``examples/frozen_features.yaml``), opens it in Debian's Chromium in light colours, and writes
``docs/pictures/groceries.webp`` (defaults and tuned configurations on the test classes, and their differences).
``NAME=quickstart``, the default, writes ``docs/pictures/models.webp`` (queries with their nearest images next to a map
of the embedding).
"""

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from support.browser import browser_page, seen

from search.show.campaigns import write_report

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
SCALE = 1.3
"""A page of 980 pixels then has text of the size of the README's on GitHub, whose page is about 850 pixels wide."""

# Arranges the figures next to each other, without the expandable details.
_ARRANGED = """([columns, names]) => {
  for (const part of document.querySelectorAll('details')) part.remove();
  const grid = document.createElement('div');
  grid.id = 'arranged';
  grid.style = `display: grid; grid-template-columns: ${columns}; gap: 12px; padding: 12px`;
  for (const name of names) {
    const figure = document.getElementById(name);
    figure.className = '';
    grid.append(figure);
  }
  document.body.replaceChildren(grid);
  dispatchEvent(new Event('resize'));
}"""


ARRANGEMENTS = {
    "groceries": {"groceries": (980, "4fr 5fr", ["test-map_at_r", "pairs-map_at_r"])},
    "quickstart": {"models": (1300, "17fr 11fr", ["gallery-best", "map-tsne-4"])},
}
"""For each search its pictures: the width of the page, the widths of their columns, and their figures."""


def main(runs: str, name: str) -> None:
    """Take the pictures of the search ``name``."""
    report = write_report(Path(runs), [name])
    PICTURES.mkdir(exist_ok=True)
    for picture, arrangement in ARRANGEMENTS[name].items():
        _take(report, picture, *arrangement)


def _take(report: Path, name: str, width: int, columns: str, figures: list[str]) -> None:
    with browser_page(width, color_scheme="light", device_scale_factor=SCALE) as page:
        page.goto(report.resolve().as_uri())
        seen(page)
        page.evaluate(_ARRANGED, [columns, figures])
        page.wait_for_timeout(1000)  # until Plotly has drawn the new widths
        _write(name, page.locator("#arranged").screenshot())


def _write(name: str, png: Any) -> None:
    file = PICTURES / f"{name}.webp"
    with Image.open(io.BytesIO(png)) as image:
        image.save(file, quality=84, method=6)
        print(f"{file}: {image.width} × {image.height}, {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
