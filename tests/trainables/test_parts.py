"""Tables of parts, and import paths, valid and invalid."""

from pathlib import Path

import pytest
from support import own_parts

from trainables.errors import InvalidInput
from trainables.losses import LOSSES, LossPart, loss_part, loss_row
from trainables.parts import load_part, plain_name
from trainables.rules import OneOf


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write modules that cannot be imported, each for another reason."""
    (tmp_path / "brokenlab").mkdir()
    for name, content in {
        "__init__": "",
        "raises": "1 / 0\n",
        "exits": "import sys; sys.exit('no licence')\n",
        "needs": "import a_missing_module\n",
        "garbled": "def (\n",
    }.items():
        (tmp_path / "brokenlab" / f"{name}.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("mylab.losses", "is not an import path: give module:Attribute"),
        ("mylab/losses.py:Circle", "is not an import path"),
        (":Circle", "is not an import path"),
        ("mylab.losses:Circle", "no module mylab is found. Correct the name before the colon, or put the folder"),
        ("support.nothing:Circle", r"no module support\.nothing is found"),
        ("support.own_parts:Pul", r"support\.own_parts has no Pul \(did you mean Pull\?\)"),
        ("support.own_parts:Pull.Inner", "has no Inner"),
        ("brokenlab.raises:X", "raises ZeroDivisionError: division by zero. Fix the module"),
        ("brokenlab.exits:X", "raises SystemExit: no licence"),
        ("brokenlab.garbled:X", "raises SyntaxError"),
        ("brokenlab.needs:X", r"needs the module a_missing_module, which is not installed\. Install it"),
        ("support.own_parts:Tiny", r"must be a class that derives from holdout\.parts\.Loss; it is <class"),
        ("support.own_parts:NOT_A_PART", "must be a class that derives from .*; it is 3"),
    ],
)
def test_a_wrong_import_path_is_one_sentence(path: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        LOSSES[path] if ":" in path else load_part(path, kind="loss")
    (sentence,) = caught.value.sentences
    assert sentence.startswith(f"The loss {path!r} ")


def test_a_table_is_a_mapping_of_its_rows() -> None:
    assert len(LOSSES) == len(list(LOSSES)) == len(LOSSES.rows)
    assert "mpa" in LOSSES
    assert "support.own_parts:Pull" not in LOSSES
    assert LOSSES.get("nothing") is None
    assert LOSSES["mpa"] is LOSSES["mpa"]
    assert LOSSES["support.own_parts:Pull"] is own_parts.Pull
    with pytest.raises(KeyError):
        LOSSES["nothing"]


def test_an_unknown_name_is_a_sentence() -> None:
    known = OneOf(LOSSES, own=True)
    assert known.mistakes("losses", "mpa") == known.mistakes("losses", "mylab:Mine") == []
    (sentence,) = known.mistakes("losses", "proxy_anchr")
    assert sentence.startswith("losses must be one of contrastive, ")
    assert sentence.endswith("it is 'proxy_anchr' (did you mean proxy_anchor?).")


def test_parts_have_plain_names() -> None:
    assert LOSSES.plain_name("mpa") == "mpa"
    assert LOSSES.plain_name("support.own_parts:Pull") == "pull"
    assert LOSSES.plain_name("support.own_parts:WithoutSpace") == "without_space"  # not the inherited name
    assert plain_name(own_parts.map_at_r) == "map_at_r"
    assert plain_name(type("MPALoss2D", (), {})) == "mpa_loss2_d"


def test_a_user_defined_loss_has_a_row() -> None:
    row = loss_row("support.own_parts:Pull")
    assert (row.paper, row.equation, row.proxy_lr) == ("", "", None)
    assert loss_part("mpa") == LossPart(name="mpa")
    part = loss_part("support.own_parts:Pull")
    assert (part.name, part.path, part.key) == ("pull", "support.own_parts:Pull", "support.own_parts:Pull")
    assert loss_part("nowhere:Mine", "mine").name == "mine"  # with a given name nothing is imported
