"""The summary table of a run."""

import io

from rich.console import Console

from soak.driving import Injected
from soak.summary import show


def test_kinds_are_counted_and_differences_said() -> None:
    told = io.StringIO()
    injected = [
        Injected(scenario="alone", fault="GCS killed", hit="7 gcs_server", codes=(1,), seconds=70.0),
        Injected(scenario="alone", fault="GCS killed", hit="8 gcs_server", codes=(1, 1), seconds=90.0),
        Injected(scenario="alone", fault="trainer killed", hit="9 ray::Train", codes=(), seconds=4.0),
    ]
    show(injected, {"alone/soak-1": ["A run is missing."], "alone/soak-2": []}, Console(file=told, width=120))
    rows = [line.split() for line in told.getvalue().splitlines()]
    assert ["alone", "GCS", "killed", "2", "0", "3", "90"] in rows
    assert ["alone", "trainer", "killed", "1", "1", "0", "4"] in rows
    assert "3 faults in 2 searches, 1 differences." in told.getvalue()
    assert "alone/soak-1: A run is missing." in told.getvalue()
