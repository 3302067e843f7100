"""Whether every file below a folder is whole, and nothing is left that only a running search needs."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import yaml
from safetensors import safe_open
from support.journals import with_checksums

PASSING = re.compile(r"^(\..+\.\d+|.+\.draft|\.shared-.+|last\.pt|begun|\.driver|.+-(wal|shm|journal))$")
"""Names of what is only there while something is written or trained."""


def file_differences(folder: Path) -> list[str]:
    """What is half written or left over below ``folder``."""
    said = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder)
        if PASSING.match(file.name) or any(part.endswith(".draft") for part in name.parts):
            said.append(f"{name} is left over.")
            continue
        try:
            if reader := READERS.get(file.suffix):
                reader(file)
        except Exception as error:  # whatever a reader of a damaged file trips over
            said.append(f"{name} cannot be read ({type(error).__name__}: {error}).")
    return said


def _json_lines(file: Path) -> None:
    for line in file.read_text().splitlines():
        json.loads(line)


def _tensors(file: Path) -> None:
    with safe_open(file, framework="numpy") as opened:
        for name in opened.keys():  # noqa: SIM118 (it is no dictionary)
            opened.get_slice(name).get_shape()


def _arrays(file: Path) -> None:
    with file.open("rb") as content, np.load(content) as opened:  # numpy leaves a damaged file open
        for name in opened:
            opened[name]


def _database(file: Path) -> None:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        (answer,) = database.execute("PRAGMA integrity_check").fetchone()
        if answer != "ok":
            raise ValueError(answer)


def _journal(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    if lines[-1]["left"] or with_checksums(lines) != file.read_bytes():
        raise ValueError("its checksums do not match")


def _page(file: Path) -> None:
    if not file.read_text().rstrip().endswith("</html>"):
        raise ValueError("the page does not end")


READERS: dict[str, Callable[[Path], object]] = {
    ".json": lambda file: json.loads(file.read_text()),
    ".jsonl": _json_lines,
    ".yaml": lambda file: yaml.safe_load(file.read_text()),
    ".safetensors": _tensors,
    ".npz": _arrays,
    ".db": _database,
    ".journal": _journal,
    ".html": _page,
}
