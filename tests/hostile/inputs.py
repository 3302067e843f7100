"""Hostile input: every kind of file, in every place where a command reads one, and values that strangers may write.

``KINDS`` × ``PLACES`` is one table. ``test_records.py`` takes a sample of it; ``test_drawn.py`` (`make attack`) draws
from it, with dangerous values and changed bytes in addition.
"""

import hashlib
import io
import json
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from support.mutations import OF_ARRAYS, bits, replace_array, replace_leaf, replace_value

from hostile.world import LOSSES, World
from trainables.common.files import read_regular

Change = Callable[[Path, bytes, World], object]
"""Puts something else in place of a file, given its content before."""


class Runs:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.path,)


def pickled(value: object, *, zipped: bool = True) -> bytes:
    """Return what ``torch.save`` writes."""
    torch.save({"digest": "d", "x": value}, content := io.BytesIO(), _use_new_zipfile_serialization=zipped)
    return content.getvalue()


def arrays(value: object) -> bytes:
    """Return an ``.npz`` file with an array of objects under the names that are read."""
    objects = np.array([value], dtype=object)
    np.savez(content := io.BytesIO(), embeddings=objects, labels=objects, paths=objects)
    return content.getvalue()


def holds(content: bytes) -> Change:
    return lambda path, before, world: path.write_bytes(content)


KINDS: dict[str, Change] = {
    "nothing": lambda path, before, world: None,
    "an empty file": holds(b""),
    "zeros": holds(bytes(4096)),
    "garbage": holds(bytes(range(256)) * 40),
    "half of it": lambda path, before, world: path.write_bytes(before[: len(before) // 2]),
    "UTF-16": lambda path, before, world: path.write_bytes("a: 3\n".encode("utf-16")),
    "escape codes": holds(b"\x1b[2J\x1b]0;owned\x07\n"),
    "100,000 lists in one another": holds(b"[" * 100_000),
    "a number of 5,000 digits": holds(b'{"seed": ' + b"9" * 5_000 + b"}"),
    "an object without keys": holds(b"{}"),
    "a list": holds(b"[3]\n"),
    "a call of Python": holds(b"a: !!python/object/apply:os.system ['touch pwned']\n"),
    "a pickle": lambda path, before, world: path.write_bytes(pickle.dumps(Runs(world.canary), protocol=2)),
    "torch.save": lambda path, before, world: path.write_bytes(pickled(Runs(world.canary))),
    "legacy torch.save": lambda path, before, world: path.write_bytes(pickled(Runs(world.canary), zipped=False)),
    "sparse tensors": lambda path, before, world: path.write_bytes(pickled(torch.eye(3).to_sparse())),
    "arrays of objects": lambda path, before, world: path.write_bytes(arrays(Runs(world.canary))),
    "a folder": lambda path, before, world: path.mkdir(),
    "a pipe": lambda path, before, world: os.mkfifo(path),
    "a link to an endless device": lambda path, before, world: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path, before, world: path.symlink_to(path.name),
    "a link to nothing": lambda path, before, world: path.symlink_to("nothing"),
    "a link to a private file": lambda path, before, world: path.symlink_to(world.secret),
}
"""What may stand in place of a file."""
NO_FILES = tuple(kind for kind in KINDS if kind.startswith("a link") or kind in ("a folder", "a pipe"))
OPEN = tuple(kind for kind in KINDS if kind not in ("nothing", "a pipe"))
"""Kinds where a search file is read, which a shell may give as a pipe."""
CONTENTS = tuple(kind for kind in KINDS if kind not in (*NO_FILES, "nothing"))

READ_SEARCH = (
    "status", "status small --json", "trials small", f"trials small {LOSSES[1]} 0", "compare small",
    "compare small --json", "compare small --output table.csv", "report small", "verify small", "disk",
    "export small --to exported", "sync small", "sync small --register", "remove small --yes", "test small",
)  # fmt: skip
PAGES = ("/api/searches", "/api/searches/small", "/api/searches/small/report")


@dataclass(frozen=True)
class Place:
    """A file that a ``command`` reads: it ends with 2, a sentence with each of ``says`` (its name), and writes nothing.

    ``kinds`` are those that are mistakes there.
    """

    file: str
    command: str
    kinds: tuple[str, ...] = (*CONTENTS, *NO_FILES)
    says: tuple[str, ...] = ()


MODEL, SEARCH = f"runs/small/models/{LOSSES[0]}", "runs/small"
EMBED, QUERY = "image.png --to e.npz", f"query index image.png --model {MODEL}"
PLACES = (
    Place(f"{SEARCH}/search.yaml", "trials small", says=("small",)),
    Place(f"{SEARCH}/split.json", "export small --to exported", says=("split",)),
    Place(f"{SEARCH}/selection.json", "compare small"),
    Place(f"{SEARCH}/summary.json", "compare small"),
    Place(f"{SEARCH}/test.json", "compare small"),
    Place("runs/test_openings.jsonl", "compare small", kinds=("garbage", "a list", *NO_FILES)),
    Place(f"{SEARCH}/study.journal", "trials small", kinds=NO_FILES),
    Place(f"{MODEL}/model.json", f"embed {MODEL} {EMBED}", says=(LOSSES[0],)),
    Place(f"{MODEL}/model.safetensors", f"embed {MODEL} {EMBED}"),
    Place(f"{SEARCH}/trials/pnp/0000/attempt-1/best.safetensors", f"embed FILE {EMBED}"),
    Place("index/index.json", QUERY, says=("index",)),
    Place("index/index.faiss", QUERY, says=("index",)),
    Place("index/paths.json", QUERY, says=("index",)),
    Place("image.png", f"embed {MODEL} {EMBED}", says=("image.png", "so nothing was written")),
    Place("row.yaml", "submit row.yaml --address http://127.0.0.1:9", kinds=OPEN),
    Place("camp.yaml", "run camp.yaml", kinds=OPEN),
    Place(
        "list.csv", "datasets manifest --set file=list.csv",
        kinds=("an empty file", "garbage", "a folder", "a pipe", "a link to itself", "a link to nothing"),
    ),
    Place("own.npz", "datasets features --set file=own.npz"),
    Place("own.parquet", "datasets features --set file=own.parquet"),
    Place("own.safetensors", "datasets features --set file=own.safetensors"),
    Place("weights.pth", "run row.yaml --set model.weights=weights.pth"),
    *(
        Place(f"{name}/{file}", f"datasets {name} --root {name} --set subset=true", says=(" ",))
        for name, file in (
            ("cub200", "images.txt"), ("cars196", "cars_annos.mat"), ("sop", "Ebay_train.txt"),
            ("inaturalist", "train2018.json"),
        )
    ),
)  # fmt: skip
"""Where files of others, or damaged ones, are read."""


def put(change: Change, path: Path, world: World) -> None:
    """Put something else in place of a file, which may share its bytes with others."""
    before = path.read_bytes()
    path.unlink()
    change(path, before, world)


SENSITIVE = (
    "tracking.uri", "tracking.uri", "checkpoints.storage_path", "dataset.root", "dataset.cache", "dataset.name",
    "losses.0", "model.weights", "model.backbone", "model.head", "training.sampler", "search.objective", "ship", "name",
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
        "${ATTACK_SECRET}", f"postgresql://u:${{ATTACK_SECRET}}@{here}/db", f"postgresql://u:p@{here}/${{ATTACK_SECRET}}",
        f"mysql+pymysql://u:${{ATTACK_SECRET}}@{here}/db", f"http://{here}/${{ATTACK_SECRET}}",
        f"http://u:${{ATTACK_SECRET}}@{here}", f"ftp://{here}/x", f"http://{here}/model.safetensors",
        "s3://attack-bucket/x", "sqlite:////tmp/${ATTACK_SECRET}/x.db", f"sqlite:///{world.secret}",
        f"file://{world.secret}", str(world.secret), str(world.victim), f"{'../' * 12}{str(world.secret)[1:]}",
        f"{world.module}:Boom", world.module, f"!!python/object/apply:os.system ['touch {world.canary}']",
        f"$(touch {world.canary})", f"; touch {world.canary} #",
        f"{{{{ cycler.__init__.__globals__.os.system('touch {world.canary}') }}}}", "\x1b]0;owned\x07\x1b[31m",
        "<script>alert(1)</script>", "x" * 5000, "a\0b", "\u202e\u0000\ud7ff", "[::1", "http://[::1", "%s%n{0}",
        "/dev/zero", "..", "-rf", "models:/x/1", "a:b;c,d|e", "it's \"q\"", "a\u2028b\u2029c", "a\x85b\x0bc\x1cd",
        "Mu\u0308ller\\a.PNG", "2026-01-01 12:00:00", "nan", "1_000", "0x10",
    ]  # fmt: skip


def _replace_in_header(path: Path, value: Any, draw: random.Random) -> None:
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    replace_leaf(header, value, draw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def _replace_key(path: Path, value: Any, draw: random.Random) -> None:
    """Replace an address, a path or code in a search file."""
    key = draw.choice(SENSITIVE)
    content = yaml.safe_load(path.read_text())
    section, _, inner = key.rpartition(".")
    if key == "losses.0":
        content["losses"][0] = value
    elif key == "ship":
        content["ship"] = [value]
    else:
        (content.setdefault(section, {}) if section else content)[inner] = value
    path.write_text(yaml.safe_dump(content, allow_unicode=True))


def change_inside(path: Path, value: Any, draw: random.Random) -> None:
    """Replace a value in a file of any format, or change its bytes."""
    match path.suffix:
        case ".yaml" if draw.random() < 0.5:
            _replace_key(path, value, draw)
        case ".json" | ".jsonl" | ".yaml" | ".journal":
            replace_value(path, value, draw)
        case ".safetensors" if draw.random() < 0.5:
            _replace_in_header(path, value, draw)
        case ".npz" if draw.random() < 0.7:
            replace_array(path, draw.choice(OF_ARRAYS), draw)
        case ".png" if draw.random() < 0.5:
            side = struct.pack(">II", *(draw.choice((0, 1, 20_000, 60_000, 2**31 - 1)) for _ in range(2)))
            path.write_bytes(path.read_bytes()[:16] + side + path.read_bytes()[24:])
        case _:
            path.write_bytes(bits(path.read_bytes(), draw, draw.choice((64, None))))


def reseal(folder: Path) -> None:
    """Write the digests of changed files into the descriptions of a model and an index."""
    for described, digests in (
        (f"{MODEL}/model.json", {"weights_sha256": "model.safetensors"}),
        ("index/index.json", {}),
    ):
        try:
            content = json.loads(read_regular(folder / described))
            for key, name in digests.items():
                content[key] = hashlib.sha256(read_regular((folder / described).with_name(name))).hexdigest()
            for name in content.get("sha256", ()):
                content["sha256"][name] = hashlib.sha256(read_regular(folder / "index" / name)).hexdigest()
            (folder / described).write_text(json.dumps(content))
        except (OSError, ValueError, TypeError, AttributeError):
            continue


def attack(world: World, draw: random.Random) -> tuple[str, str, Callable[[Path], object]]:
    """Draw a file that is something else, or a value or bytes in it; read by the command of its place, or by any.

    Returns:
        Its name, the words of the command that reads it or the path of a live page, and what prepares a folder.
    """
    file, words = draw.choice([*((place.file, place.command) for place in PLACES), *((name, "") for name in RECORDS)])
    kind = draw.choice([*KINDS, *["a value"] * len(KINDS)])
    value = draw.choice(strings(world)) if draw.random() < 0.75 else draw.choice(OTHERS)
    inner, resealed = draw.random(), draw.random() < 0.7
    if not words or (file.startswith(SEARCH) and draw.random() < 0.7):
        words = draw.choice((*READ_SEARCH, *PAGES))

    def prepare(folder: Path) -> None:
        own = random.Random(inner)
        shutil.copytree(world.origin, folder, dirs_exist_ok=True)
        found = own.choice(sorted(folder.glob(file)))
        if kind == "a value":
            change_inside(found, value, own)
        else:
            put(KINDS[kind], found, world)
        if resealed:
            reseal(folder)

    said = f"{value!r:.60}" if kind == "a value" else kind
    return f"{file}: {said}: {words}", words.replace("FILE", file), prepare


RECORDS = (
    f"{SEARCH}/test/*/*.npz", f"{SEARCH}/test/*/retrieval/*.npz", f"{SEARCH}/test/*/thumbnails.npz",
)  # fmt: skip
"""Files of which only some commands need each."""


def with_runs(words: str) -> list[str]:
    """Return the arguments of a command; those that read the runs folder name it."""
    return [*words.split(), *(["--runs", "runs"] if words.startswith((*READ_SEARCH, "run ")) else [])]
