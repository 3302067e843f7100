"""Figures of a report as tests read them."""

from collections.abc import Mapping
from typing import Any

from search.show.drawing import Figure, Plot


def plot_of(figure: Figure | None) -> Mapping[str, Any]:
    """Return the plot of a figure that there is, in Plotly's JSON."""
    assert figure is not None
    assert isinstance(figure.picture, Plot)
    return figure.picture.figure
