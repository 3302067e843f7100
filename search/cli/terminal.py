"""A terminal that takes no orders from what is shown on it: names of classes, files and searches are other people's."""

import re
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_ORDERS = re.compile(r"\x1b\[[\d;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Colours, control characters but for the tabulator and the line's end, and what turns the direction of writing."""


class Terminal(Console):
    """Rich's console, which leaves control characters of the text in it; here they go."""

    # They are no cells wide to rich too, so a table stays as it was laid out without them.
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """As rich's; what it says to the terminal itself stays."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(_ORDERS.sub("", segment.text), segment.style)
