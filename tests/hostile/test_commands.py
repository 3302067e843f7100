"""Wrong arguments, options and ``--set``, one per row: the command line, and the expected sentence.

``row.yaml`` is a good search file. :func:`odd_files` makes the others.
"""
# ruff: noqa: E501
# fmt: off

import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.refusals import GOOD, refused

from hostile.world import LOSSES, World

SETTINGS = [
    (["trials"], "--set needs key.path=value, such as search.trials=20; it is 'trials'."),
    (["search..trials=3"], "--set needs key.path=value, such as search.trials=20; it is 'search..trials=3'."),
    ([f"{'.'.join(['a'] * 5_000)}=1"], "--set needs key.path=value, such as search.trials=20; it is 'a.a.a."),
    (["search.trials=3", "search.trials=0"], "search.trials: must be at least 1; it is 0."),
    (["name.x=3"], "name: must be text; it is {'x': 3}."),
    (["search.trials=[1"], "--set search.trials=[1 is not valid YAML: line 2, column 1: while parsing a flow sequence"),
    (["search.trials=\x1b[31m"], r"--set search.trials=\x1b[31m is not valid YAML: unacceptable character #x001b"),
    (["a\x1bb=1"], r"--set a\x1bb=1 has the key 'a\x1bb', which holds an invisible character"),
    (["__class__=3"], "__class__: no such section; remove it."),
]

COMMANDS = [
    (["run", "folder"], "folder cannot be read (Is a directory); name a search file."),
    (["run", "/dev/zero"], "/dev/zero has more than 1,000,000 characters, too many for a search file; shorten it."),
    (["run", "circle"], "circle cannot be read (Too many levels of symbolic links); name a search file."),
    (["run", "gone.yaml"], "There is no file 'gone.yaml' and no recipe or campaign of that name"),
    (["run", "mpa_cub200"], "(did you mean mpa-cub200?)"),
    (["run", "ro.yaml"], "(did you mean row.yaml?)"),
    (["run", "x" * 300], "xxx…' cannot be used (File name too long); name another path, or change its permissions."),
    (["doctor", "loss-benchmark-cub200"], "loss-benchmark-cub200 is a campaign of several searches; `holdout run loss-benchmark-cub200` runs it."),
    (["run", "row.yaml", "--output", "x.pdf"], "--output x.pdf: the suffix of the file is its format and must be one of .csv, .md, .tex; it is '.pdf'."),
    (["run", "row.yaml", "--runs", "y" * 300], "yyy…' cannot be used (File name too long)"),
    (["run", "row.yaml", "--runs", "/dev/null/x"], "--runs: /dev/null cannot be written to; name a folder of your own."),
    (["run", "row.yaml", "--set", "tracking.uri=sqlite:///other.db"], "tracking.uri: other.db is the database of another program (it has the tables bookmarks, but not experiments); name another file."),
    (["status", ".."], "There is no search '..' in "),
    (["status", "a\0b"], r"There is no search 'a\x00b' in "),
    (["test", "x"], "There is no search 'x' in "),
    (["embed", "folder", "folder", "--to", "e.npz"], "The folder 'folder' holds no image."),
    (["query", "folder", "row.yaml"], "folder is not an index: index.json cannot be read there (No such file or directory)."),
    (["query", "garbled", "row.yaml"], "The index garbled is damaged ("),
    (["query", "future", "row.yaml"], "describes an index in the format 99, and this version reads 3; make the index again"),
    (["papers", "zebra"], "zebra is not a paper; choose one of mpa, "),
    (["status", "--jobs", "--address", "http://127.0.0.1:9"], "No cluster answers at http://127.0.0.1:9 ([Errno 111] Connection refused)"),
    (["stop", "x", "--address", "http://user:not-for-every-eye@127.0.0.1:9"], "No cluster answers at http://user:***@127.0.0.1:9 "),
]

MODELS = [
    (["embed", "model", "nothing", "--to", "a.npz"], "There is no image and no folder "),
    (["embed", "model", "image.png", "--to", "a.csv"], "--to a.csv: the file's suffix sets the format and must be one of .npz, .parquet; it is '.csv'."),
    (["embed", "model", "image.png", "--to", "b.npz"], "it is a folder; name a file."),
    (["embed", "model", "image.png", "--to", "row.yaml/c.npz"], "is not writable"),
    (["embed", "model", "image.png", "--to", "a.npz", "--batch-size", "0"], "batch_size is 0; give 1 or more."),
    (["embed", "model", "image.png", "--to", "a.npz", "--device", "gpu"], "which is not available here"),
    (["embed", "folder", "image.png", "--to", "a.npz"], "is not a model: model.json and model.safetensors cannot be read there"),
    (["embed", "birds", "image.png", "--to", "a.npz"], "is the folder of a search, not a model"),
    (["embed", "nowhere://birds", "image.png", "--to", "a.npz"], "cannot be accessed (ValueError: Unsupported filesystem: 'nowhere'); install"),
    (["embed", "own", "image.png", "--to", "a.npz"], "has a user-defined network, lab:Net, whose code would be imported and run"),
    (["embed", "weights.pt", "image.png", "--to", "a.npz"], "other formats, which would have to be unpickled, are not read"),
    (["index", "model", "image.png", "--to", "birds"], "holds files that are not an index's (search.yaml)"),
    (["query", "nothing", "image.png"], "is not an index"),
    (["query", "index", "nothing", "--model", "model"], "There is no image and no folder"),
    (["query", "index", "image.png", "--model", "model", "-k", "97"], "k is 97, and the index holds 96 images; give 1 to 96."),
    (["query", "index", "image.png", "--model", "model", "-k", "0"], "k is 0, and the index holds 96 images; give 1 to 96."),
    (["query", "index", "image.png", "--model", "other"], "The index index was made by the model "),
    (["query", "nameless", "image.png"], "nameless does not name its model; add --model."),
]

USAGE = [
    (["run", "row.yaml", "--runs", "row.yaml"], "dir 'row.yaml' is a file"),
    (["run", "a\0b"], "embedded null byte"),
    (["compare"], "Missing argument 'NAME' of `"),
    (["query", "folder"], "holdout query INDEX IMAGES`. `"),
    (["ruN"], "No such command 'ruN'. Did you mean 'run'?"),
    (["run", "row.yaml", "--nope"], "No such option: --nope"),
    (["trials", "x", "pnp", "1e3"], "Invalid value for 'NUMBER'"),
    (["serve", "--port", "99999"], "Invalid value for '--port': it must be less than or equal to 65535"),
    (["check", "pnp", "--kind", "zebra"], "'zebra' is not one of 'loss', 'dataset', 'backbone', 'sampler', 'metric'"),
]


@pytest.fixture
def odd_files(here: Path) -> Path:
    """The current folder of the commands, with files of all kinds."""
    (here / "row.yaml").write_text(GOOD)
    for name in ("folder", "garbled", "future"):
        (here / name).mkdir()
    (here / "garbled" / "index.json").write_text("{")
    (here / "future" / "index.json").write_text('{"format": 99}')
    os.mkfifo(here / "pipe")
    (here / "circle").symlink_to("circle")
    database = sqlite3.connect(here / "other.db")
    database.execute("CREATE TABLE bookmarks (address)")
    database.close()
    return here


@pytest.fixture
def models(odd_files: Path, world: World) -> Path:
    """The folder with two models, an index and more that is none."""
    for name, loss in (("model", LOSSES[0]), ("own", LOSSES[0]), ("other", LOSSES[1])):
        shutil.copytree(world.origin / "runs" / "small" / "models" / loss, odd_files / name)
    for name in ("index", "nameless"):
        shutil.copytree(world.origin / "index", odd_files / name)
    for file, section, key, value in (("own/model.json", "model", "backbone", "lab:Net"), ("nameless/index.json", "", "model", None)):
        content = json.loads((odd_files / file).read_text())
        (content[section] if section else content)[key] = value
        (odd_files / file).write_text(json.dumps(content))
    for name in ("birds", "b.npz"):
        (odd_files / name).mkdir()
    (odd_files / "birds" / "search.yaml").write_text("name: birds\n")
    (odd_files / "weights.pt").write_bytes(b"\x80\x04N.")
    shutil.copy(world.origin / "image.png", odd_files)
    return odd_files


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(("arguments", "sentence"), MODELS, ids=lambda value: str(value)[:60])
def test_a_wrong_model_index_or_image_is_a_sentence(arguments: list[str], sentence: str, models: Path) -> None:
    refused(models, arguments, sentence)


SET = [(["run", "row.yaml", *(word for setting in settings for word in ("--set", setting))], said) for settings, said in SETTINGS]


@pytest.mark.parametrize(("arguments", "sentence"), [*SET, *COMMANDS, *USAGE], ids=lambda value: str(value)[:60])
def test_a_wrong_argument_is_a_sentence(arguments: list[str], sentence: str, odd_files: Path) -> None:
    refused(odd_files, arguments, sentence)


def test_runs_from_the_environment_may_be_no_file(odd_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDOUT_RUNS", "row.yaml")
    refused(odd_files, ["status"], "dir 'row.yaml' is a file")


def test_a_port_that_is_taken_is_a_sentence(odd_files: Path, taken_port: int) -> None:
    refused(odd_files, ["serve", "--runs", "folder", "--port", str(taken_port)], f"127.0.0.1:{taken_port} (Address already in use); choose")
