"""``holdout check``: built-in and user-defined parts, with the exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import holdout_here, plain

OWN = '''\
from support import own_parts

class Good(own_parts.Pull):
    space = {}

class Ordered(own_parts.Ordered):
    space = {}

def forgetful():
    """A network without its number of features."""
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's package that is not on Python's path."""
    (tmp_path / "mylab").mkdir()
    (tmp_path / "mylab" / "__init__.py").touch()
    (tmp_path / "mylab" / "losses.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "mylab"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("part", "kind"), [("contrastive", "loss"), ("glyphs", "dataset"), ("balanced", "sampler"), ("map_at_r", "metric")]
)
def test_built_in_parts_hold(part: str, kind: str) -> None:
    record = json.loads(holdout_here("check", part, "--json").stdout)
    assert (record["part"], record["kind"], record["ok"]) == (part, kind, True)
    assert record["checks"]
    assert all(check["what"] and check["ok"] for check in record["checks"])


def test_a_part_beside_the_user_is_found_and_what_fails_is_said(here: Path) -> None:
    assert "all" in plain(holdout_here("check", "mylab.losses:Good").stdout)
    done = holdout_here("check", "mylab.losses:Ordered", "--json", code=1)
    failed = [check for check in json.loads(done.stdout)["checks"] if not check["ok"]]
    assert any("order" in check["sentence"] for check in failed)
    shown = plain(holdout_here("check", "mylab.losses:Ordered", code=1).stdout)
    for check in failed:
        assert plain(check["what"]) in shown
    shown = plain(holdout_here("check", "mylab.losses:forgetful", "--kind", "backbone", code=1).stdout)
    assert "features" in shown, "where a part does not say its kind"


@pytest.mark.parametrize("part", ["contrastiv", "mylab.losses:Nothing", "nolab.losses:Good"])
def test_no_such_part_is_a_mistake(part: str, here: Path) -> None:
    for kind in ((), ("--kind", "loss")):
        done = holdout_here("check", part, *kind, code=2)
        assert (part in plain(done.stderr), done.stdout) == (True, "")


def test_the_options_of_a_data_set_are_given_like_those_of_a_search(image_folder: Path) -> None:
    assert json.loads(holdout_here("check", "folder", "--set", f"root={image_folder}", "--json").stdout)["ok"]
    said = plain(holdout_here("check", "contrastive", "--set", "root=x", code=2).stderr)
    assert said == "--set sets an option of a data set, but contrastive is a loss; leave it out."


@pytest.mark.parametrize(("flags", "found"), [((), True), (("-P",), False)])
def test_the_folder_of_the_command_comes_last_on_the_path(flags: tuple[str, ...], found: bool, here: Path) -> None:
    program = (
        "import sys; sys.path[:] = [path for path in sys.path if path]\n"
        "from search.config.names import find_parts_here\n"
        "find_parts_here(); find_parts_here()\n"
        "import os; print(sys.path.count(os.getcwd()), sys.path[-1] == os.getcwd())"
    )
    command = [sys.executable, *flags, "-c", program]
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout.split() == (["1", "True"] if found else ["0", "False"])
