"""Results as tables at Python's prompt and in notebooks."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from search.report.rows import Result, Row
from trainables.errors import suggestion

if TYPE_CHECKING:
    import pandas

MOST_LINES = 15
"""Rows of a table at the prompt; beyond it the middle is left out."""

Entry = TypeVar("Entry")


class Shown(Result):
    """A result that is shown as a table. ``to_frame`` gives the table as a pandas data frame."""

    def to_frame(self) -> "pandas.DataFrame":
        """Return the numbers as a table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return text_of(f"<{type(self).__name__}>", self.to_frame())

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return html_of(self.to_frame())


def text_of(title: str, frame: "pandas.DataFrame") -> str:
    """Return a table below its title, in fewer than 20 lines."""
    table = frame.to_string(index=False, max_rows=MOST_LINES, max_cols=10, float_format="{:.4f}".format)
    return f"{title}\n{table}"


def html_of(frame: "pandas.DataFrame") -> str:
    """Return a table as HTML, with everything that a user named escaped."""
    return str(frame.to_html(index=False, na_rep="–", float_format="{:.4f}".format, max_rows=60))


def frame_of(rows: Iterable[Row]) -> "pandas.DataFrame":
    """Return one line per row: its name, and its objective at each stage, the means of seeds; metrics on the test."""
    import pandas

    return pandas.DataFrame(
        [
            {
                "search": row.search,
                "loss": row.loss,
                "role": row.role.value,
                "trial": row.number,
                "search_value": row.search_value,
                "confirmed": row.confirmed and row.confirmed.mean,
                "final": row.final and row.final.mean,
                **{f"test_{metric}": found and found.mean for metric, found in (row.test or {}).items()},
            }
            for row in rows
        ]
    ).astype({"trial": "Int64"})


class Named(dict[str, Entry]):
    """A dictionary whose error for an unknown name lists the known names."""

    def __missing__(self, name: Any) -> Entry:
        raise KeyError(f"there is no {name!r}{suggestion(str(name), self)}; there is: {', '.join(self) or 'nothing'}")
