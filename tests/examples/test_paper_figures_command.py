"""The command ``python -m examples.papers``: its list, its files and its errors."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from examples.papers.__main__ import main
from examples.papers.figures import FIGURES


def test_every_figure_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    text = capsys.readouterr().out
    assert all(name in text and row.source in text for name, row in FIGURES.items())


def test_a_figure_is_written_and_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "worked.svg"
    file.write_text("replaced")
    main(["sampling-3", "--to", str(file)])
    said = capsys.readouterr().out
    assert "= 0.37; the paper's is 0.37" in said
    assert "worked.svg" in said
    assert ElementTree.parse(file).getroot().tag.endswith("svg")
    assert [entry.name for entry in tmp_path.iterdir()] == ["worked.svg"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("pnp-8", "--to", "{root}/a.svg"),
        ("sampling-3",),
        ("sampling-3", "--to", "{root}/a.pdf"),
        ("sampling-3", "--to", "{root}/nowhere/a.svg"),
        ("sampling-3", "--to", "{root}/folder.svg"),
    ],
)
def test_mistakes_exit_with_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(SystemExit) as exit_of:
        main([text.format(root=tmp_path) for text in arguments])
    assert exit_of.value.code == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.svg"]
