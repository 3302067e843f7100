"""The command line: its lists, its errors, and ``holdout check``."""

import json
import os
import pwd
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import command, holdout_here, json_of, plain, printed, refusal
from support.driving import Opened, drive, only
from support.small_disk import small_files

import holdout as python
from search.driver.stages import search_stage
from search.engines.ray_session import ensure_token
from search.study.trial_queue import TrialQueue
from spaces.losses import SPACES
from trainables.losses import LOSSES
from trainables.models import BACKBONES


def test_losses_come_with_paper_equation_defaults_and_ranges() -> None:
    shown = printed("losses")
    listed = json_of("losses")
    assert [entry["name"] for entry in listed] == list(LOSSES)
    for entry in listed:
        assert entry["name"] in shown
        assert entry["paper"]
        assert plain(entry["equation"]) in shown
        assert entry["hyperparameters"].keys() == SPACES[entry["name"]].keys()
    (pnp,) = [entry for entry in listed if entry["name"] == "pnp"]
    assert pnp["hyperparameters"]["alpha"]["range"] == "1 to 8, where variant Dq"


def test_backbones_say_what_they_want_and_where_their_weights_go() -> None:
    (listed,) = json_of("backbones", "bninception")
    assert [255 * value for value in listed["mean"]] == pytest.approx([128, 117, 104])
    assert listed["channels"] == "BGR"
    assert [entry["name"] for entry in json_of("backbones")] == list(BACKBONES)
    shown = printed("backbones")
    weights = listed["imagenet"]
    for words in (*BACKBONES, weights["address"], weights["file"], "torchvision:NAME", "timm:NAME"):
        assert words in shown


def test_a_search_without_a_result_yet_is_compared_as_far_as_it_is(opened: Opened, tmp_path: Path) -> None:
    drive(opened(name="begun"))
    there = ("--runs", tmp_path / "runs")
    assert not (tmp_path / "runs" / "begun" / "summary.json").exists()
    assert "begun: losses, default and tuned" in holdout_here("compare", "begun", *there).stdout
    assert python.compare("begun", runs=tmp_path / "runs").rows
    assert python.open("begun", runs=tmp_path / "runs").summary.losses["pnp"].trials.complete
    (tmp_path / "runs" / "begun" / "search.yaml").write_text("{")
    assert "search.yaml is not valid YAML" in refusal("compare", "begun", *there)


def test_the_state_of_a_search_says_what_is_done_and_what_was_interrupted(opened: Opened, tmp_path: Path) -> None:
    there = ("--runs", tmp_path / "runs")
    assert "There is no search in" in printed("status", *there)
    search = opened(name="half", losses=["pnp"], stages=["search"])
    queue = TrialQueue(only(search_stage(search)))
    assert queue.next_trial()
    (entry,) = json_of("status", "half", *there)
    (row,) = entry["studies"]
    assert (entry["state"], entry["finished"], row["running"], row["interrupted"]) == ("searching", False, 0, 1)
    shown = printed("status", "half", *there)
    assert "searching, stopped" in shown
    assert "half/pnp: 1 interrupted trial; `holdout run`" in shown
    with search.folder.only_driver():
        (entry,) = json_of("status", "half", *there)
        assert (entry["studies"][0]["running"], entry["studies"][0]["interrupted"]) == (1, 0)

    drive(opened(name="whole", losses=["pnp"], stages=["search"]))
    (entry,) = json_of("status", "whole", *there)
    assert (entry["state"], entry["finished"]) == ("searched", True)
    assert "stopped" not in holdout_here("status", "whole", *there).stdout
    drive(opened(name="unchosen", losses=["pnp"]))
    assert "searched, stopped" in holdout_here("status", "unchosen", *there).stdout


def test_the_token_is_its_owner_s_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    token = tmp_path / ".ray" / "auth_token"
    with small_files(8), pytest.raises(OSError, match="too large"):
        ensure_token()
    assert not token.exists(), "an empty one would be used from then on"
    ensure_token()
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    first = token.read_text()
    assert len(first) >= 32
    ensure_token()
    assert token.read_text() == first


@pytest.mark.parametrize(("closed", "shown"), [("1>&-", False), ("0>&- 2>&-", True)])
def test_a_closed_stream_or_a_locale_without_a_character_stops_no_command(closed: str, shown: bool) -> None:
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *command("losses")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    program = subprocess.run(words, capture_output=True, env=environment, check=False)
    assert (program.returncode, program.stderr, b"?" in program.stdout) == (0, b"", shown)


def test_a_tilde_that_no_shell_expands_is_the_home_folder(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = opened()
    drive(search)
    home = search.folder.runs.parent
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.setenv("HOME", str(home))
    runs, name = f"~/{search.folder.runs.name}", search.name
    holdout_here("trials", name, f"--runs={runs}", "--csv=~/made/trials.csv")
    assert (home / "made" / "trials.csv").is_file()
    monkeypatch.setenv("HOLDOUT_RUNS", runs)
    assert name in holdout_here("status", "--json").stdout
    assert python.open(name).name == python.open(name, runs=runs).name == name
    holdout_here("compare", name, "--output", "~/made/table.csv", code=(0, 2))
    assert not [*(tmp_path / "empty").iterdir()], "no folder called ~"


def test_a_full_disk_below_the_output_is_not_that_of_the_current_folder(tmp_path: Path) -> None:
    done = subprocess.run(f"{shlex.join(command('--help'))} > /dev/full", shell=True, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("There is no space left for the output, or temporary files. Free some space there,")


# ``holdout check``: built-in and user-defined parts.

OWN = """\
from support import own_parts

class Good(own_parts.Pull):
    space = {}

class Ordered(own_parts.Ordered):
    space = {}
"""


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
    record = json_of("check", part)
    assert (record["part"], record["kind"], record["ok"]) == (part, kind, True)
    assert record["checks"]
    assert all(check["check"] and check["state"] == "ok" for check in record["checks"])


def test_a_part_beside_the_user_is_found_and_what_fails_is_said(here: Path) -> None:
    assert plain(holdout_here("check", "mylab.losses:Good").stderr).endswith("checks passed.")
    done = holdout_here("check", "mylab.losses:Ordered", "--json", code=1)
    failed = [check for check in json.loads(done.stdout)["checks"] if check["state"] == "failed"]
    assert any("order" in check["found"] for check in failed)


@pytest.mark.parametrize("part", ["contrastiv", "mylab.losses:Nothing", "nolab.losses:Good"])
def test_no_such_part_is_a_mistake(part: str, here: Path) -> None:
    done = holdout_here("check", part, code=2)
    assert (part in plain(done.stderr), done.stdout) == (True, "")


def test_the_options_of_a_data_set_are_given_like_those_of_a_search(image_folder: Path) -> None:
    assert json_of("check", "folder", "--set", f"root={image_folder}")["ok"]
    said = refusal("check", "contrastive", "--set", "root=x")
    assert said == "--set sets an option of a data set, but contrastive is a loss; leave it out."


@pytest.mark.parametrize(("flags", "found"), [((), True), (("-P",), False)])
def test_the_folder_of_the_command_comes_last_on_the_path(flags: tuple[str, ...], found: bool, here: Path) -> None:
    program = (
        "import sys; sys.path[:] = [path for path in sys.path if path]\n"
        "from search.config.names import find_parts_here\n"
        "find_parts_here(); find_parts_here()\n"
        "import os; print(sys.path.count(os.getcwd()), sys.path[-1] == os.getcwd())"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    words = [sys.executable, *flags, "-c", program]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == (["1", "True"] if found else ["0", "False"])


def test_a_user_without_a_home_is_told_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*number: int) -> str:
        raise KeyError("getpwuid(): uid not found")

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    said = refusal("disk", "--runs", tmp_path)
    assert said == "This user has no home folder; set HOME to a folder that can be written to."
