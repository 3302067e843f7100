"""A search on a cluster of two nodes, through the command line: submitted, listed, followed, stopped, resumed."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from commands import holdout, holdout_here, plain, stored, write_search
from conftest import small_search
from mlflow_rows import assert_mlflow_equals_the_studies
from optuna.trial import TrialState
from services import Nodes, free_port, ray_nodes

from search.cluster.submission import submission
from trainables.mistakes import Mistakes

EPOCHS = 20


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with ray_nodes(tmp_path_factory.mktemp("token") / "auth_token") as nodes:
        nodes.add(cpus=1)
        yield nodes


@pytest.fixture(scope="module")
def runs(nodes: Nodes, image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a search that was submitted, stopped half way and submitted again."""
    place = tmp_path_factory.mktemp("cluster")
    runs, there = place / "runs", ("--address", nodes.address)
    content = small_search(image_folder, search={"trials": 2, "pruner": "none"}, losses=["pnp"], stages=["search"])
    content["training"]["epochs"] = EPOCHS
    submit = ("submit", write_search(place / "small.yaml", content), "--runs", runs, *there)

    first = json.loads(holdout_here(*submit, "--json").stdout)
    assert first["state"] in ("pending", "running")
    assert "is there already and runs" in plain(holdout_here(*submit).stdout)
    refusal = plain(holdout_here(*submit, "--set", "search.trials=9", code=2).stderr)
    assert "runs already with another search file" in refusal
    (listed,) = json.loads(holdout_here("list", *there, "--json").stdout)
    assert listed["job"] == first["job"]

    deadline = time.monotonic() + 300
    while not any(len(trial.intermediate_values) > 1 for trial in stored(runs, "small", "pnp")):
        (listed,) = json.loads(holdout_here("list", *there, "--json").stdout)
        assert listed["state"] in ("pending", "running"), holdout_here("logs", "small", *there).stdout
        assert time.monotonic() < deadline, holdout_here("logs", "small", *there).stdout
        time.sleep(0.5)
    assert json.loads(holdout_here("stop", "small", *there, "--json").stdout)["state"] == "stopped"
    assert any(not trial.state.is_finished() for trial in stored(runs, "small", "pnp"))
    assert "does not run: it has stopped" in plain(holdout_here("stop", "small", *there).stdout)
    holdout_here("wait", "small", *there, code=1)

    second = json.loads(holdout_here(*submit, "--json").stdout)
    assert second["attempt"] == 2
    assert "trial 1: all 20 epochs trained" in plain(holdout_here("logs", "small", "--follow", *there).stdout)
    assert json.loads(holdout_here("wait", "small", *there, "--json").stdout)["state"] == "succeeded"
    return runs


def test_a_stopped_search_went_on_and_finished_every_trial_once(runs: Path) -> None:
    trials = stored(runs, "small", "pnp")
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 2
    assert all(sorted(trial.intermediate_values) == list(range(1, EPOCHS + 1)) for trial in trials)
    assert_mlflow_equals_the_studies(runs, "small", ("pnp",))


def test_status_asks_the_cluster(runs: Path, nodes: Nodes) -> None:
    there = json.loads(holdout_here("status", "small", "--address", nodes.address, "--json").stdout)
    assert there == json.loads(holdout_here("status", "small", "--runs", runs, "--json").stdout)
    assert there[0]["courses"][0]["complete"] == 2


def test_a_mistake_that_only_the_cluster_sees_comes_back(nodes: Nodes, tmp_path: Path) -> None:
    file = write_search(tmp_path / "lost.yaml", {**small_search(tmp_path / "nowhere"), "name": "lost"})
    holdout_here("submit", file, "--runs", tmp_path / "runs", "--address", nodes.address)
    said = plain(holdout_here("wait", "lost", "--address", nodes.address, code=2).stderr)
    assert "dataset.root is" in said
    assert "which does not exist" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}])
def test_who_has_no_token_is_refused(nodes: Nodes, header: dict[str, str]) -> None:
    for path in ("/api/jobs/", "/api/version"):
        with pytest.raises(HTTPError) as refusal:
            urlopen(Request(nodes.address + path, headers=header), timeout=10)
        assert refusal.value.code in (401, 403)
        refusal.value.close()


def test_a_wrong_token_is_said_in_a_sentence(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("0" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    assert "does not take this machine's token" in plain(holdout("list", "--address", nodes.address, code=2).stderr)


def test_a_search_that_is_not_there_is_said_in_a_sentence(nodes: Nodes) -> None:
    for command in ("logs", "stop", "wait"):
        said = plain(holdout_here(command, "nothing", "--address", nodes.address, code=2).stderr)
        assert f"There is no search 'nothing' on the cluster at {nodes.address}" in said


@pytest.mark.parametrize("command", [("list",), ("logs", "x"), ("stop", "x"), ("wait", "x"), ("status",)])
def test_an_address_where_nobody_answers_is_said_in_a_sentence(command: tuple[str, ...]) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert f"No cluster answers at {nowhere}" in plain(holdout_here(*command, "--address", nowhere, code=2).stderr)
    said = plain(holdout_here(*command, "--address", "head:8265", code=2).stderr)
    assert "must be the URL of Ray's dashboard" in said


def test_only_the_cluster_looks_at_its_data(search_file: Callable[..., dict[str, Any]]) -> None:
    content = search_file(dataset={"name": "folder", "root": "/on/the/cluster"})
    name, text = submission(content)
    assert name == "small"
    assert yaml.safe_load(text) == content


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dataset": {"name": "folder", "root": "images"}}, "dataset.root must be a whole path on the cluster"),
        ({"model": {"weights": "w.safetensors"}}, "model.weights must be a whole path on the cluster"),
        ({"search": {"storage": "sqlite:///x.db"}}, "search.storage must hold a whole path"),
        ({"tracking": {"uri": "sqlite:///x.db"}}, "tracking.uri must hold a whole path"),
        ({"losses": ["mpa"], "space": {"pnp": {}}}, "space.pnp: this is none of the search's losses"),
        ({"search": {"trials": 0}}, "search.trials"),
        ({"dataset": {"name": "foldr"}}, "did you mean folder"),
    ],
)
def test_what_can_be_seen_here_is_refused_here(
    search_file: Callable[..., dict[str, Any]], changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Mistakes, match=sentence):
        submission(search_file(**changes))
