"""``holdout embed``, ``index`` and ``query``: files, output and errors."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from support.commands import holdout_here, json_of, plain, printed
from support.listening import listening
from support.small_model import SmallModel

from trainables.inference.embedder import Embedder
from trainables.inference.index import ImageIndex

CPU = ("--device", "cpu")


@pytest.fixture
def index(made: SmallModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an index that this user made; each test has another user."""
    folder = tmp_path_factory.mktemp("index") / "birds"
    holdout_here("index", made.folder, made.images, "--to", folder, *CPU)
    return folder


def refused(*arguments: str | Path) -> str:
    """Return the one line of a refused command, with exit code 2."""
    done = holdout_here(*arguments, code=2)
    assert not done.stdout
    (line,) = done.stderr.splitlines()
    return line


def test_embeddings_and_paths_in_a_file(made: SmallModel, model: Embedder, tmp_path: Path) -> None:
    paths = [str(path) for path in sorted(made.images.rglob("*.png"))]
    expected = model.embed(made.images)
    (tmp_path / "all.npz").write_text("what was there is replaced")
    done = holdout_here("embed", made.folder, made.images, "--to", tmp_path / "all.npz", *CPU)
    assert [path.name for path in tmp_path.iterdir()] == ["all.npz"]
    assert plain(done.stdout) == f"{tmp_path / 'all.npz'} holds 60 embeddings of 8 dimensions."
    assert plain(done.stderr).startswith("60 images in ")
    assert plain(done.stderr).endswith(" images per second.")
    with np.load(tmp_path / "all.npz", allow_pickle=False) as file:
        assert sorted(file) == ["embeddings", "paths"]
        assert file["embeddings"].dtype == np.float32
        assert np.array_equal(file["embeddings"], expected)
        assert file["paths"].tolist() == paths

    given = [made.images / "class-03" / "07.png", made.images / "class-01", made.images / "class-03" / "07.png"]
    to = ("--to", tmp_path / "new" / "all.parquet", "--batch-size", 5, "--json")
    record = json.loads(holdout_here("embed", made.checkpoint, *given, *to, *CPU).stdout)
    assert (record["images"], record["dimensions"], record["unreadable"]) == (12, 8, [])
    assert record["images_per_second"] == pytest.approx(12 / record["seconds"])
    assert record["model"] == str(made.checkpoint)
    table = pyarrow.parquet.read_table(tmp_path / "new" / "all.parquet")
    assert table.column_names == ["embeddings", "paths"]
    inside = [given[0], *sorted(given[1].iterdir()), given[0]]
    assert table["paths"].to_pylist() == [*map(str, inside)], "in the order given"
    found = np.array(table["embeddings"].to_pylist(), dtype=np.float32)
    assert np.array_equal(found, model.embed(inside, batch_size=5))


def test_neighbours_from_the_command_line(index: Path, made: SmallModel, model: Embedder) -> None:
    query = made.images / "class-02" / "05.png"
    expected = ImageIndex.load(index, model).query(query, k=3)
    record = json_of("query", index, query, "-k", 3, *CPU)
    (found,) = record["queries"]
    assert found["path"] == str(query)
    assert [(one["path"], one["similarity"]) for one in found["neighbours"]] == [
        (one.path, pytest.approx(one.similarity, abs=1e-6)) for one in expected[0]
    ]
    assert (record["k"], record["model"], record["images"]) == (3, str(made.folder), 1)
    by_checkpoint = ("query", index, query, "-k", 3, "--model", made.checkpoint, "--json", *CPU)
    other = json.loads(holdout_here(*by_checkpoint).stdout)
    assert (other["queries"], other["model"]) == (record["queries"], str(made.checkpoint))
    shown = printed("query", index, query, made.images / "class-00", "-k", 3, *CPU)
    assert shown.startswith(f"{query} rank similarity neighbour ")
    rows = [f"{rank} {one.similarity:.4f} {one.path}" for rank, one in enumerate(expected[0], start=1)]
    assert " ".join(rows) in shown
    assert shown.count("rank similarity neighbour") == 11


def test_a_path_is_no_markup_and_gives_the_terminal_no_orders(made: SmallModel, tmp_path: Path) -> None:
    """An image's name cannot change the terminal's title, colours or content."""
    index = tmp_path / "[i]"
    image = tmp_path / "[red]heron\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.png"
    image.write_bytes((made.images / "class-00" / "00.png").read_bytes())
    (tmp_path / "[bold]none\x1b[31m\r.png").write_text("none")
    done = holdout_here("index", made.folder, tmp_path, "--to", index, "--skip-unreadable", *CPU)
    assert str(index) in plain(done.stdout)
    assert "[bold]none\\x1b[31m\\r.png cannot be read" in plain(done.stderr)
    shown = holdout_here("query", index, image, "-k", 1, *CPU)
    assert shown.stdout.count("[red]heron]0;owned[2J31mgnp.png") == 2
    for text in (done.stdout, done.stderr, shown.stdout, shown.stderr):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
    program = json_of("query", index, image, "-k", 1, *CPU)
    assert program["queries"][0]["path"] == str(image)  # JSON has them escaped


def test_relative_addresses_are_found_from_another_folder(
    made: SmallModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.folder.parent)
    holdout_here("index", "model", "images/class-00", "--to", tmp_path / "index", *CPU)
    monkeypatch.chdir(tmp_path)
    (found,) = json_of("query", "index", made.images / "class-00" / "01.png", "-k", 1, *CPU)["queries"]
    assert found["neighbours"][0]["path"] == "images/class-00/01.png"  # as it was given


@pytest.fixture
def mixed(made: SmallModel, tmp_path: Path) -> Path:
    """Four images, two of which are unreadable."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("a.png", "c.png"):
        (folder / name).write_bytes((made.images / "class-00" / "00.png").read_bytes())
    (folder / "b.jpg").write_text("a letter")
    (folder / "d.png").write_bytes((folder / "a.png").read_bytes()[:50])
    return folder


def test_unreadable_images_are_named_and_left_out(mixed: Path, made: SmallModel, tmp_path: Path) -> None:
    for command in ("embed", "index"):
        refused = holdout_here(command, made.folder, mixed, "--to", tmp_path / "to.npz", *CPU, code=2)
        assert refused.stderr.splitlines()[2:] == [
            "2 of 4 images cannot be read, so nothing was written: repair them, or add --skip-unreadable."
        ]
        assert not (tmp_path / "to.npz").exists()
    arguments = ("embed", made.folder, mixed, "--to", tmp_path / "to.npz", "--skip-unreadable", *CPU)
    said = holdout_here(*arguments).stderr.splitlines()
    assert said[0] == f"{mixed / 'b.jpg'} cannot be read (not an image of a known format)."
    assert said[1].startswith(f"{mixed / 'd.png'} cannot be read (")
    assert said[2].endswith("; skipped 2 that cannot be read.")
    assert np.load(tmp_path / "to.npz")["paths"].tolist() == [str(mixed / "a.png"), str(mixed / "c.png")]
    unreadable = json_of(*arguments)["unreadable"]
    assert [image["path"] for image in unreadable] == [str(mixed / "b.jpg"), str(mixed / "d.png")]

    holdout_here("index", made.folder, mixed, "--to", tmp_path / "index", "--skip-unreadable", *CPU)
    queries = json_of("query", tmp_path / "index", mixed, "-k", 2, "--skip-unreadable", *CPU)["queries"]
    assert [query["path"] for query in queries] == [str(mixed / "a.png"), str(mixed / "c.png")]
    said = holdout_here("embed", made.folder, mixed / "b.jpg", "--to", tmp_path / "b.npz", "--skip-unreadable", code=2)
    assert said.stderr.splitlines()[-1] == "No image can be read, so nothing was written."


def test_the_model_that_a_strangers_index_names_is_not_loaded(index: Path, made: SmallModel, tmp_path: Path) -> None:
    image = made.images / "class-00" / "00.png"
    copied = tmp_path / "copied"
    shutil.copytree(index, copied)
    said = refused("query", copied, image)
    assert said == (
        f"copied names model: {made.folder}, which is neither imported nor contacted: you did not make copied here, or "
        "it was changed since. If you trust its author, add --trust-code (in Python, trust_code=True)."
    )
    assert json_of("query", copied, image, "--model", made.folder, *CPU)["queries"]
    with listening() as (port, heard):
        for folder in (index, copied):  # also where this user made one that somebody exchanged
            described = json.loads((folder / "index.json").read_text())
            changed = json.dumps({**described, "model": f"http://127.0.0.1:{port}/model"})
            (folder / "index.json").write_text(changed)
            assert "neither imported nor contacted" in refused("query", folder, image)
            (folder / "index.json").write_text(json.dumps(described))
        assert not heard
