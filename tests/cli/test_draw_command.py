"""``holdout draw``: what it lists, what it writes and what it refuses."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from support.commands import holdout_here, plain

from search.pages.figures.papers.table import FIGURES


def test_every_figure_is_listed() -> None:
    listed = json.loads(holdout_here("draw", "--json").stdout)
    assert [entry["name"] for entry in listed] == list(FIGURES)
    text = plain(holdout_here("draw").stdout)
    for entry in listed:
        assert entry["name"] in text
        assert entry["source"] in text


def test_a_figure_is_written_and_said(tmp_path: Path) -> None:
    file = tmp_path / "worked.svg"
    said = plain(holdout_here("draw", "sampling-3", "--to", file).stdout)
    assert "= 0.37; the paper's is 0.37" in said
    assert "worked.svg" in said
    assert ElementTree.parse(file).getroot().tag.endswith("svg")
    assert [entry.name for entry in tmp_path.iterdir()] == ["worked.svg"]


def test_a_file_is_replaced_and_the_result_is_json(tmp_path: Path) -> None:
    file = tmp_path / "pnp.png"
    file.write_text("old")
    found = json.loads(holdout_here("draw", "pnp-3", "--to", file, "--json").stdout)
    assert found["figure"] == "pnp-3"
    assert found["file"] == str(file)
    assert len(found["table"]["rows"]) == 5
    with Image.open(file) as image:
        assert image.format == "PNG"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("pnp-8", "--to", "{root}/a.svg"), "it is 'pnp-8' (did you mean pnp-"),
        (("sampling_2", "--to", "{root}/a.svg"), "it is 'sampling_2' (did you mean sampling-2?)."),
        (("pnp-3",), "pnp-3 needs a file, as in `holdout draw pnp-3 --to pnp-3.svg`."),
        (("--to", "{root}/a.svg"), "name the figure to draw, one of pnp-1, "),
        (("pnp-3", "--to", "{root}/a.pdf"), "must be one of .svg, .png; it is '.pdf'."),
        (("pnp-3", "--to", "{root}/a"), "must be one of .svg, .png; it is ''."),
        (("pnp-3", "--to", "{root}/nowhere/a.svg"), "there is no folder {root}/nowhere; make it, or name another"),
        (("pnp-3", "--to", "{root}/folder.svg"), "it is a folder; name a file."),
    ],
)
def test_mistakes_exit_with_2(arguments: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    done = holdout_here("draw", *(text.format(root=tmp_path) for text in arguments), code=2)
    assert expected.format(root=tmp_path) in plain(done.stderr)
    assert done.stdout == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.svg"]
