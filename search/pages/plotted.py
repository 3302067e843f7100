"""Plotly's figures as all sections draw them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from search.pages.figure import Plot
from search.pages.ink import COLOURS, FAINT

LEGEND_BELOW: Mapping[str, Any] = {"x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"}
"""For many lines beside buttons, which stand where the legend does else."""
_CLEAR = "rgba(0,0,0,0)"


def plotted(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], *, height: int = 380) -> Plot:
    """The ``traces`` over a background that is the page's; fonts and the colours of grids are the page's too."""
    import plotly.graph_objects as go  # half a second

    figure = go.Figure(
        data=list(traces),
        layout={
            "template": None,
            "paper_bgcolor": _CLEAR,
            "plot_bgcolor": _CLEAR,
            "hovermode": "closest",
            **layout,
        },
    )
    return Plot(json.loads(figure.to_json()), height=height)


def buttons(*entries: tuple[str, str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """A row of buttons, each with its label and Plotly's method and arguments; the first one is on."""
    return [
        {
            "type": "buttons",
            "direction": "right",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "pad": {"b": 4},
            # The page's own colour of text cannot be read on Plotly's own colour of a button that is on.
            "font": {"color": COLOURS[0], "size": 11},
            "bordercolor": FAINT,
            "buttons": [{"label": label, "method": method, "args": list(args)} for label, method, args in entries],
        }
    ]


def vertical(x: float, *, xref: str = "x", yref: str = "paper") -> dict[str, Any]:
    """A dotted vertical line over the whole height."""
    line = {"color": FAINT, "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "xref": xref, "yref": yref, "line": line}


def rounded(value: float) -> float:
    """Five significant digits: more are no pixels."""
    return float(f"{value:.5g}")
