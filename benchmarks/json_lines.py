"""Results of an interruptible benchmark: a file with a line of JSON for each of them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainables.common.files import write_whole


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the results in the file, none without it, and remove a last line that a kill cut off."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        write_whole(path, lambda stream: stream.write("".join(whole).encode()))
    return [json.loads(line) for line in whole]


def append_lines(path: Path, results: Iterable[Mapping[str, Any]]) -> None:
    """Append ``results`` to the file."""
    with path.open("a") as file:
        file.writelines(json.dumps(result) + "\n" for result in results)
