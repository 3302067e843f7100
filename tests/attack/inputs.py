"""Hostile input, drawn from a seed: what a stranger may send, and the commands that read it."""

import hashlib
import json
import os
import random
import shutil
import sqlite3
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from support.mutations import OF_ARRAYS, bits, replace_array, replace_leaf, replace_value
from support.serving import asked

from attack.world import LOSSES, World

Action = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A change of a copy of the world, and a command that reads it.

    ``prepare`` changes the folder; ``action`` runs in it, in a process of its own; ``may_contact`` is the port of an
    address that the user typed; with ``may_trace`` the traceback of a user's code is no harm.
    """

    kind: str
    name: str
    prepare: Callable[[Path], object]
    action: Action
    may_contact: int | None = None
    may_trace: bool = False


def command(*arguments: str) -> Action:
    """Return an action that runs ``holdout`` with ``arguments``."""

    def run() -> None:
        from search.cli.main import main

        sys.argv = ["holdout", *arguments]
        main()

    return run


def page(runs: str, path: str) -> Action:
    """Return an action that asks the live page of ``runs`` for ``path``; a server error is a traceback."""

    def ask() -> int:
        from search.report.live.app import live_app

        status, _, body = asked(live_app(Path(runs), None), path, "", (b"host", b"localhost"))
        sys.stdout.write(body)
        return int(status >= 500) * 70

    return ask


READ_SEARCH: dict[str, Action] = {
    " ".join(words): command(*words, "--runs", "runs")
    for words in (
        ["status"], ["status", "small", "--json"], ["trials", "small"], ["trials", "small", LOSSES[1], "0"],
        ["compare", "small"], ["compare", "small", "--json"], ["compare", "small", "--output", "table.csv"],
        ["report", "small"], ["verify", "small"], ["disk"], ["export", "small", "--to", "exported"],
        ["sync", "small"], ["sync", "small", "--register"], ["remove", "small", "--yes"], ["test", "small"],
    )
} | {
    f"live page {path}": page("runs", path)
    for path in ("/api/searches", "/api/searches/small", "/api/searches/small/report", "/api/searches/small/health")
}  # fmt: skip
RECORDS = (
    "search.yaml", "search.yaml", "search.yaml", "split.json", "selection.json", "summary.json", "test.json",
    "../test_openings.jsonl", "study.journal", "study.journal", "models/proxy_anchor/model.json",
)  # fmt: skip
SENSITIVE = (
    "tracking.uri", "tracking.uri", "checkpoints.storage_path", "dataset.root",
    "dataset.cache", "dataset.name", "losses.0", "model.weights", "model.backbone", "model.head", "training.sampler",
    "search.objective", "ship", "name",
)  # fmt: skip
"""Keys of a search file that name an address, a path or code."""
OTHERS: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**30, 1e308, float("inf"), float("nan"), [], {}, "", [[[[[[[[]]]]]]]],
    {"x": {"y": "z"}}, ["a"] * 3,
)  # fmt: skip


def strings(world: World) -> list[str]:
    """Return texts that are dangerous where they are used as addresses, paths, names, code or output."""
    here = f"127.0.0.1:{world.port}"
    return [
        "${ATTACK_SECRET}",
        f"postgresql://u:${{ATTACK_SECRET}}@{here}/db",
        f"postgresql://u:p@{here}/${{ATTACK_SECRET}}",
        f"mysql+pymysql://u:${{ATTACK_SECRET}}@{here}/db",
        f"http://{here}/${{ATTACK_SECRET}}",
        f"http://u:${{ATTACK_SECRET}}@{here}",
        f"ftp://{here}/x",
        f"http://{here}/model.safetensors",
        "s3://attack-bucket/x",
        "sqlite:////tmp/${ATTACK_SECRET}/x.db",
        f"sqlite:///{world.secret}",
        f"file://{world.secret}",
        str(world.secret),
        str(world.victim),
        f"{'../' * 12}{str(world.secret)[1:]}",
        f"{world.module}:Boom",
        world.module,
        f"!!python/object/apply:os.system ['touch {world.canary}']",
        f"$(touch {world.canary})",
        f"; touch {world.canary} #",
        f"{{{{ cycler.__init__.__globals__.os.system('touch {world.canary}') }}}}",
        "\x1b]0;owned\x07\x1b[31m",
        "<script>alert(1)</script>",
        "x" * 5000,
        "a\0b",
        "\u202e\u0000\ud7ff",
        "[::1",
        "http://[::1",
        "%s%n{0}",
        "/dev/zero",
        "..",
        "-rf",
        "models:/x/1",
    ]


def _value(world: World, draw: random.Random) -> Any:
    return draw.choice(strings(world)) if draw.random() < 0.75 else draw.choice(OTHERS)


def _read(draw: random.Random) -> tuple[str, Action]:
    return draw.choice(list(READ_SEARCH.items()))


def run_copy(world: World, folder: Path) -> Path:
    """Copy the runs into ``folder``; return the folder of the search."""
    shutil.copytree(world.runs, folder / "runs")
    return folder / "runs" / "small"


def _key(world: World, draw: random.Random) -> Attack:
    """An address, a path or code in the file of a stranger's search."""
    key, value, (name, action) = draw.choice(SENSITIVE), draw.choice(strings(world)), _read(draw)

    def prepare(folder: Path) -> None:
        path = run_copy(world, folder) / "search.yaml"
        content = yaml.safe_load(path.read_text())
        section, _, inner = key.rpartition(".")
        if key == "losses.0":
            content["losses"][0] = value
        elif key == "ship":
            content["ship"] = [value]
        else:
            (content[section] if section else content)[inner] = value
        path.write_text(yaml.safe_dump(content, allow_unicode=True))

    return Attack(kind="a key", name=f"{key} = {value!r:.60}: {name}", prepare=prepare, action=action)


def _replace_cell(path: Path, value: Any, draw: random.Random) -> None:
    """Replace a cell of a database, in a table with rows; values of JSON columns are written as JSON."""
    with sqlite3.connect(path) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = draw.choice([name for name in names if database.execute(f"SELECT 1 FROM {name}").fetchone()])
        column = draw.choice([row[1] for row in database.execute(f"PRAGMA table_info({table})")])
        row = draw.choice([row for (row,) in database.execute(f"SELECT rowid FROM {table}")])
        text = json.dumps(value) if "json" in column else value if isinstance(value, str | None) else str(value)
        try:
            database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (text, row))
        except sqlite3.Error:  # a key that must be unique, or an integer that is none
            database.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    database.close()


def _mlflow(world: World, draw: random.Random) -> Attack:
    """A value in the MLflow database of a stranger's runs folder."""
    value, inner = _value(world, draw), draw.random()
    words = ["sync", "small", *draw.choice(([], ["--register"]))]

    def prepare(folder: Path) -> None:
        _replace_cell(run_copy(world, folder).parent / "mlflow.db", value, random.Random(inner))

    action = command(*words, "--runs", "runs")
    return Attack(kind="MLflow's database", name=f"{value!r:.60}: {words[0]}", prepare=prepare, action=action)


def _record(world: World, draw: random.Random) -> Attack:
    """A value in a record of a stranger's search."""
    file, value, (name, action), inner = draw.choice(RECORDS), _value(world, draw), _read(draw), draw.random()

    def prepare(folder: Path) -> None:
        replace_value(run_copy(world, folder) / file, value, random.Random(inner))

    return Attack(kind="a record", name=f"{file} = {value!r:.60}: {name}", prepare=prepare, action=action)


FILES: dict[str, Callable[[World, Path], object]] = {
    "a link to the secret": lambda world, path: path.symlink_to(world.secret),
    "a link to /dev/zero": lambda world, path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda world, path: path.symlink_to(path.name),
    "a pipe": lambda world, path: os.mkfifo(path),
    "a folder": lambda world, path: path.mkdir(),
    "empty": lambda world, path: path.write_bytes(b""),
    "absent": lambda world, path: None,
    "deep": lambda world, path: path.write_bytes(b"[" * 100_000),
    "wide": lambda world, path: path.write_bytes(b"[" + b"1," * 3_000_000 + b"1]"),
    "garbage": lambda world, path: path.write_bytes(bytes(range(256)) * 40),
    "a long line": lambda world, path: path.write_bytes(b"x" * 30_000_000),
    "a pickle": lambda world, path: path.write_bytes(f"cos\nsystem\n(S'touch {world.canary}'\ntR.".encode()),
}


def _file(world: World, draw: random.Random) -> Attack:
    """Something else instead of a file of a stranger's search."""
    (what, change), (name, action), inner = draw.choice(list(FILES.items())), _read(draw), draw.random()

    def prepare(folder: Path) -> None:
        search = run_copy(world, folder)
        files = [path for path in sorted(search.rglob("*")) if path.is_file()]
        first = [path for path in files if path.parent == search]
        path = random.Random(inner).choice([*files, *first * 3])
        path.unlink()
        change(world, path)

    return Attack(kind="a file", name=f"{what}: {name}", prepare=prepare, action=action)


ARRAYS = ("test/*/*.npz", "test/*/retrieval/*.npz", "test/*/thumbnails.npz")
READ_ARRAYS = {
    name: READ_SEARCH[name] for name in READ_SEARCH if name.split()[0] in ("compare", "report", "verify", "live")
}


def _arrays(world: World, draw: random.Random) -> Attack:
    """Changed arrays in a stranger's results, by which the tables and figures are made."""
    pattern, (name, action), inner = draw.choice(ARRAYS), draw.choice(list(READ_ARRAYS.items())), draw.random()

    def prepare(folder: Path) -> None:
        own = random.Random(inner)
        path = own.choice(sorted(run_copy(world, folder).glob(pattern)))
        if own.random() < 0.3:
            path.write_bytes(bits(path.read_bytes(), own))
            return
        change = own.choice(
            [*OF_ARRAYS, lambda array: np.array([_Pickled()] * len(np.atleast_1d(array)), dtype=object)]
        )
        replace_array(path, change, own)

    return Attack(kind="arrays", name=f"{pattern}: {name}", prepare=prepare, action=action)


def _pickled(array: Any) -> Any:
    return np.array([_Pickled()] * len(np.atleast_1d(array)), dtype=object)


class _Pickled:
    """An object that runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("true",)


READ_MODEL = command("embed", "model", "image.png", "--to", "e.npz")


def _model(world: World, draw: random.Random) -> Attack:
    """A value in the description of a stranger's model."""
    value, inner = _value(world, draw), draw.random()

    def prepare(folder: Path) -> None:
        _copy_model(world, folder)
        path = folder / "model" / "model.json"
        content = json.loads(path.read_text())
        replace_leaf(content, value, random.Random(inner))
        path.write_text(json.dumps(content))

    return Attack(kind="a model", name=f"model.json = {value!r:.60}: embed", prepare=prepare, action=READ_MODEL)


def _copy_model(world: World, folder: Path) -> None:
    shutil.copytree(world.model, folder / "model")
    shutil.copy(next(iter(sorted(world.images.glob("*/*.png")))), folder / "image.png")


def _weights(world: World, draw: random.Random) -> Attack:
    """A changed header, or other bytes, in a stranger's weights file."""
    value, inner = _value(world, draw), draw.random()

    def prepare(folder: Path) -> None:
        _copy_model(world, folder)
        path = folder / "model" / "model.safetensors"
        content, own = path.read_bytes(), random.Random(inner)
        length = struct.unpack("<Q", content[:8])[0]
        if own.random() < 0.5:
            header = json.loads(content[8 : 8 + length])
            replace_leaf(header, value, own)
            text = json.dumps(header).encode()
            path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
        else:
            path.write_bytes(bits(content, own, 8 + length))
        if own.random() < 0.7:  # with which the digest then agrees
            description = folder / "model" / "model.json"
            described = json.loads(description.read_text())
            described["weights_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
            description.write_text(json.dumps(described))

    return Attack(kind="weights", name=f"weights, {value!r:.60}: embed", prepare=prepare, action=READ_MODEL)


def _index(world: World, draw: random.Random) -> Attack:
    """A value in the description of a stranger's index, or other bytes in its files."""
    value, inner = _value(world, draw), draw.random()

    def prepare(folder: Path) -> None:
        _copy_model(world, folder)
        shutil.copytree(world.index, folder / "index")
        own = random.Random(inner)
        if own.random() < 0.4:
            path = folder / "index" / "index.json"
            content = json.loads(path.read_text())
            replace_leaf(content, value, own)
            path.write_text(json.dumps(content))
        else:
            path = own.choice([path for path in sorted((folder / "index").iterdir()) if path.is_file()])
            path.write_bytes(bits(path.read_bytes(), own, own.choice((64, None))))
            if path.name != "index.json" and own.random() < 0.7:  # with which the digests then agree
                description = folder / "index" / "index.json"
                content = json.loads(description.read_text())
                content["sha256"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
                description.write_text(json.dumps(content))

    words = ("--model", "model") if draw.random() < 0.8 else ()
    query = command("query", "index", "image.png", *words)
    return Attack(kind="an index", name=f"index, {value!r:.60}: query", prepare=prepare, action=query)


def _image(world: World, draw: random.Random) -> Attack:
    """An image whose bytes were changed, or whose header claims a size."""
    inner = draw.random()

    def prepare(folder: Path) -> None:
        _copy_model(world, folder)
        own, path = random.Random(inner), folder / "image.png"
        content = path.read_bytes()
        if own.random() < 0.5:
            side = struct.pack(">II", *(own.choice((0, 1, 20_000, 60_000, 2**31 - 1)) for _ in range(2)))
            path.write_bytes(content[:16] + side + content[24:])
        else:
            path.write_bytes(bits(content, own))

    return Attack(kind="an image", name="an image: embed", prepare=prepare, action=READ_MODEL)


def _search_file(world: World, draw: random.Random) -> Attack:
    """A value in the file of a recipe that a stranger sent; `submit` sends it nowhere, since nothing listens."""
    value, inner = _value(world, draw), draw.random()

    def prepare(folder: Path) -> None:
        content = yaml.safe_load((world.runs / "small" / "search.yaml").read_text())
        content["ship"] = []
        replace_leaf(content, value, random.Random(inner))
        (folder / "search.yaml").write_text(yaml.safe_dump(content, allow_unicode=True))

    submit = command("submit", "search.yaml", "--address", "http://127.0.0.1:9")
    return Attack(kind="a search file", name=f"{value!r:.60}: submit", prepare=prepare, action=submit, may_contact=9)


def _jobs(world: World, draw: random.Random) -> Attack:
    """A job of a cluster whose metadata and log a stranger wrote."""
    details = {
        "submission_id": "holdout-small-1", "status": "SUCCEEDED", "start_time": 1, "end_time": 2,
        "driver_exit_code": 0, "message": "done",
        "metadata": {"holdout.search": "small", "holdout.attempt": "1", "holdout.runs": "runs", "holdout.file": "0"},
    }  # fmt: skip
    value = _value(world, draw)
    replace_leaf(details, value, random.Random(draw.random()))
    written = json.dumps([details]).encode()[:6000].hex()
    words = draw.choice((["status", "--jobs"], ["logs", "small"], ["logs", "small", "--all"], ["stop", "small"]))
    action = command(*words, "--address", f"http://127.0.0.1:{world.dashboard_port}/{written}")
    name = f"job, {value!r:.60}: {words[0]}"
    return Attack(kind="a job", name=name, prepare=lambda folder: None, action=action, may_contact=world.dashboard_port)


KINDS = (_key, _key, _record, _record, _file, _mlflow, _model, _weights, _index, _image, _arrays, _search_file, _jobs)
"""The generators of attacks by a stranger; each draws one."""
