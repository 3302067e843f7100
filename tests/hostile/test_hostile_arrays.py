"""Hostile arrays in a finished search's results, in the files from which tables, figures and checks are made."""
# ruff: noqa: E501

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.commands import holdout_here, plain
from support.refusals import within
from support.tampered import Copied

Arrays = dict[str, Any]


def _each(**values: Any) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update(values)


def _times(name: str, factor: int) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({name: np.tile(arrays[name], (factor,) + (1,) * (arrays[name].ndim - 1))})


def _as(name: str, change: Callable[[Any], Any]) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({name: change(arrays[name])})


def _picture(content: bytes) -> Callable[[Arrays], None]:
    """Replace the first picture."""

    def change(arrays: Arrays) -> None:
        rest = arrays["pictures"][arrays["lengths_T"][0] :]
        arrays["pictures"] = np.concatenate([np.frombuffer(content, dtype=np.uint8), rest])
        arrays["lengths_T"] = np.concatenate([[len(content)], arrays["lengths_T"][1:]])

    return change


def _webp(width: int, height: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (width, height)).save(content, "WEBP", lossless=True, quality=0)
    return content.getvalue()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
RESULTS, RANKING, THUMBNAILS = "results", "rankings", "thumbnails"
REFUSED: list[tuple[str, str, Callable[[Arrays], object]]] = [
    (RESULTS, "fewer labels", _as("labels", lambda array: array[:-1])),
    (RESULTS, "a label of no class", _as("labels", lambda array: array + 10**12)),
    (RESULTS, "no labels", lambda arrays: arrays.pop("labels")),
    (RESULTS, "numbers for keys", _as("keys", lambda array: np.arange(len(array)))),
    (RESULTS, "half a letter in a key", _as("keys", lambda array: np.array(["\ud800"] * len(array)))),
    (RESULTS, "text for scores", _as("map_at_r", lambda array: array.astype(str))),
    (RANKING, "a neighbour that does not exist", _as("neighbours_QK", lambda array: array + 10**8)),
    (RANKING, "a query that does not exist", _as("queries_Q", lambda array: array + 10**8)),
    (RANKING, "neighbours without ranks", _as("neighbours_QK", lambda array: array[:, 0])),
    (RANKING, "50,000 images on the map", lambda arrays: [_times(name, 625)(arrays) for name in ("sample_S", "embeddings_SD")]),
    (RANKING, "more dimensions than memory", _as("embeddings_SD", lambda array: np.zeros((len(array), 70_000), np.float16))),
    (RANKING, "fewer embeddings", _as("embeddings_SD", lambda array: array[:-1])),
    (THUMBNAILS, "negative lengths", _as("lengths_T", lambda array: -array)),
    (THUMBNAILS, "a program for a picture", _picture(EPS)),
    (THUMBNAILS, "a large picture", _picture(_webp(4_000, 4_000))),
    (THUMBNAILS, "masses of pictures", _picture(b"\0" * 4_000_000)),
    (THUMBNAILS, "50,000 queries", lambda arrays: [_times(name, 50_000)(arrays) for name in ("query_kinds_G", "query_rows_G")]),
    (THUMBNAILS, "another kind of query", _as("query_kinds_G", lambda array: np.array(["x" * 50] * len(array)))),
    (THUMBNAILS, "a query that does not exist", _as("query_rows_G", lambda array: array + 10**8)),
]  # fmt: skip
DRAWN: list[tuple[str, str, Callable[[Arrays], object]]] = [
    (RESULTS, "infinite scores", _as("map_at_r", lambda array: array + np.inf)),
    (RANKING, "no embedding is a number", _as("embeddings_SD", lambda array: array * np.nan)),
    (THUMBNAILS, "markup for a metric", _each(metric=np.array("<script>alert(1)</script>"))),
    (THUMBNAILS, "no pictures", _each(rows_T=np.array([], int), lengths_T=np.array([], int), pictures=np.array([], np.uint8))),
]  # fmt: skip


def _change(copied: Copied, where: str, change: Callable[[Arrays], object]) -> None:
    found = getattr(copied, where)
    copied.arrays(change, found[0] if isinstance(found, list) else found)


def _said(copied: Copied, *words: str, code: int | tuple[int, ...]) -> str:
    with within(60):
        done = holdout_here(*words, "--runs", copied.runs, code=code)
    text = plain(done.stdout + done.stderr)
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(("where", "name", "change"), REFUSED, ids=[f"{row[0]}: {row[1]}" for row in REFUSED])
def test_what_contradicts_itself_is_one_sentence(
    where: str, name: str, change: Callable[[Arrays], object], copied: Copied
) -> None:
    report = copied.path / "report.html"
    _change(copied, where, change)
    said = _said(copied, "report", "small", code=2)
    assert "damaged, or another version wrote it" in said
    assert len(said.strip().splitlines()) <= 4, "a sentence"
    assert not report.exists()
    _said(copied, "compare", "small", code=(0, 2))
    assert "small" in _said(copied, "verify", "small", code=1)


@pytest.mark.parametrize(("where", "name", "change"), DRAWN, ids=[f"{row[0]}: {row[1]}" for row in DRAWN])
def test_odd_numbers_are_found_by_verify(
    where: str, name: str, change: Callable[[Arrays], object], copied: Copied
) -> None:
    _change(copied, where, change)
    _said(copied, "report", "small", code=(0, 2))
    if (report := copied.path / "report.html").exists():
        assert "<script>alert(1)" not in report.read_text()
    _said(copied, "compare", "small", code=(0, 2))
    assert "small" in _said(copied, "verify", "small", code=1)


def test_no_program_is_run_for_a_picture(copied: Copied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would call Ghostscript for PostScript."""
    folder, proof = tmp_path / "bin", tmp_path / "it-ran"
    folder.mkdir()
    (folder / "gs").write_text(f"#!/bin/sh\ntouch {proof}\n")
    (folder / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    _change(copied, THUMBNAILS, _picture(EPS))
    _said(copied, "report", "small", code=2)
    assert not proof.exists()
