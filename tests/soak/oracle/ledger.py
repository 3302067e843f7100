"""Whether the test classes were opened once, in both ledgers, and scored once."""

import json
from pathlib import Path
from typing import Any

NAME = "test_openings.jsonl"


def ledger_differences(runs: Path, state: Path, searches: tuple[str, ...], openings: int) -> list[str]:
    """Where the ledgers in the runs folder and in the user's state folder do not have ``openings``, each read once."""
    said = []
    for file in (runs / NAME, state / "holdout" / NAME):
        lines = _lines(file)
        opened = [line["id"] for line in lines if "id" in line]
        read = [line["read"] for line in lines if "read" in line]
        if len(opened) != openings:
            said.append(f"{file} has {len(opened)} openings, not {openings}.")
        if sorted(set(read)) != sorted(set(opened)) or len(read) != len(set(read)):
            said.append(f"{file} has the images of {read}, and the openings {opened}.")
    if not openings:
        return said
    known = {line["id"] for line in _lines(runs / NAME) if "id" in line}
    for search in searches:
        scored = [entry["id"] for entry in json.loads((runs / search / "test.json").read_text())["openings"]]
        if len(scored) != 1 or not set(scored) <= known:
            said.append(f"{search}/test.json has scores of {scored}, the ledger of {sorted(known)}.")
    return said


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def scores(runs: Path, search: str) -> Any:
    """What the test of a search came to: each model's metrics, in their order."""
    file = runs / search / "test.json"
    if not file.exists():
        return None
    (opening,) = json.loads(file.read_text())["openings"]
    return [
        {key: score[key] for key in ("loss", "source_trial", "seed", "fold", "metrics")} for score in opening["scores"]
    ]
