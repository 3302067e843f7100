"""The program ``python -m benchmarks.gpu [PART …] [--json FILE]``; a part prints its tables when they are complete."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.gpu.feeding import feeding
from benchmarks.gpu.neighbours import neighbours
from benchmarks.gpu.networks import networks
from benchmarks.gpu.sizes import Sizes, sizes_for
from benchmarks.timing import best_device

PARTS: dict[str, Callable[[Console, Sizes, torch.device], None]] = {
    "neighbours": neighbours,
    "feeding": feeding,
    "networks": networks,
}


class KeepsTables(Console):
    """A console that also keeps the tables that it prints, and writes them to ``file`` if there is one."""

    def __init__(self, file: Path | None) -> None:
        super().__init__(width=120)
        self._json, self._tables = file, list[dict[str, Any]]()

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*objects, **options)
        for table in objects:
            if isinstance(table, Table) and self._json is not None:
                columns = [[str(cell) for cell in column.cells] for column in table.columns]
                header = [str(column.header) for column in table.columns]
                rows = [list(row) for row in zip(*columns, strict=True)]
                self._tables.append({"title": str(table.title), "columns": header, "rows": rows})
                self._json.write_text(json.dumps(self._tables))


def main(*arguments: str) -> None:
    """Run all parts, or those named."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu")
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    names = given.parts
    if unknown := set(names) - PARTS.keys():
        sys.exit(f"There is no part {', '.join(sorted(unknown))}; name some of {', '.join(PARTS)}.")
    device = best_device()
    console = KeepsTables(given.json)
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; float32 convolutions may take TF32")
    for name in names or PARTS:
        PARTS[name](console, sizes_for(device), device)


if __name__ == "__main__":
    main(*sys.argv[1:])
