"""A Python whose path a shell would take apart: Ray's workers would never start from it, and this is found first."""

import pickle
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.commands import holdout_here, plain, write_search
from support.refusals import NOWHERE

from search.engines.ray_engine import check_ray
from search.tables import engine_name, ray_mistakes

SPACED = "/home/me/my project/.venv/bin/python"


@pytest.fixture
def spaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", SPACED)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1))
def test_a_path_that_passes_stays_one_word(name: str) -> None:
    """Against the two ways that Ray's own command takes: joined and split again, and through bash."""
    python = f"/nowhere/{name}/bin/python"
    if ray_mistakes(python):
        return
    assert shlex.split(subprocess.list2cmdline([python])) == [python]
    found = subprocess.run(["bash", "-c", f"printf '[%s]' {python}"], capture_output=True, check=True).stdout
    assert found == f"[{python}]".encode()


def test_a_path_that_a_shell_takes_apart_is_refused_and_no_other() -> None:
    for name in ("my_project-2.0+cu", "élan", "a#b", "~me", "a=b,c@d"):
        assert ray_mistakes(f"/home/{name}/bin/python") == []
    for name in ("my project", "it's", 'a"b', "a\\b", "a&b", "copy (1)", "$HOME"):
        (mistake,) = ray_mistakes(f"/home/{name}/bin/python")
        assert f"/home/{name}/bin/python, because this path contains " in mistake
        assert "virtual environment in a folder without it, or set resources.engine to local." in mistake
    again = pickle.loads(pickle.dumps(mistake))  # as a sentence of an error does, between processes
    assert (again, again.found, again.advice) == (mistake, mistake.found, mistake.advice)


@settings(max_examples=60, deadline=None)
@given(st.text("aé", min_size=1, max_size=60))
def test_a_folder_that_passes_has_room_for_sockets(name: str) -> None:
    folder = f"/{name}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        found = ray_mistakes("/bin/python")
        patch.setenv("RAY_ADDRESS", "there:6379")
        assert not ray_mistakes("/bin/python")
    fits = len(f"{folder}/ray/session_2026-11-26_16-00-00_123456_1234567/sockets/plasma_store".encode()) <= 107
    assert found == [] if fits else f"sockets below {folder}, because" in found[0]


@pytest.mark.parametrize(("address", "state"), [(NOWHERE, "failed"), ("", "warning")])
@pytest.mark.usefixtures("spaced")
def test_doctor_fails_where_searches_would_take_ray(address: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    if engine_name("auto", 0) == "ray":
        state = "failed"  # a GPU
    (found,) = check_ray()
    assert (found.check, found.state) == ("ray", state)
    assert found.found == f"Ray cannot start workers with {SPACED}, because this path contains ' '"
    assert found.fix.startswith("Make the virtual environment in a folder without it, or set ")


@pytest.mark.usefixtures("spaced")
def test_a_search_is_refused_at_once(search_file: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    file = write_search(tmp_path / "x.yaml", search_file(resources={"engine": "ray"}))
    done = holdout_here("run", file, "--runs", tmp_path / "runs", code=2)
    assert f"Ray cannot start workers with {SPACED}" in plain(done.stderr)
    assert not (tmp_path / "runs").exists()
