"""A search on a cluster of two nodes, through the command line: submitted, listed, followed, stopped, resumed."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from optuna.trial import TrialState
from support.commands import command, holdout, holdout_here, json_of, plain, printed, refusal, stored, write_search
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.services import SECRET, Nodes
from support.small_search import SearchFile, small_search

from holdout.cli.submission import submission
from trainables.common.errors import InvalidInput

pytestmark = pytest.mark.cluster

EPOCHS = 20
MEMBERS = ("lot-6", "lot-8")


@pytest.fixture(scope="module")
def runs(nodes: Nodes, image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a campaign that was submitted, stopped half way and submitted again."""
    folder = tmp_path_factory.mktemp("cluster")
    runs, there = folder / "runs", ("--address", nodes.address)
    (folder / SECRET).mkdir()
    tracking = {"uri": f"sqlite:///{folder}/${{SECRET_WORD}}/mlflow.db"}
    submit = ("submit", write_search(folder / "lot.yaml", campaign(image_folder, tracking=tracking)), *there, "--runs")

    lost = write_search(folder / "lost.yaml", {**small_search(folder / "nowhere"), "name": "lost"})
    holdout_here("submit", lost, "--runs", folder / "lost", *there)  # looked at below; side by side they are quicker
    words = command(*submit, runs, "--json")
    users = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]  # in the same moment
    first, other = [json.loads(user.communicate()[0]) for user in users]
    assert [user.returncode for user in users] == [0, 0]
    assert first["job"] == other["job"]
    assert first["state"] in ("pending", "running")
    assert "is already running" in printed(*submit, runs)
    assert "runs already with another file" in refusal(*submit, runs, "--set", "base.search.trials=9")
    listed = json_of("status", "--jobs", *there)
    assert [(job["name"], job["runs"]) for job in listed] == [("lost", str(folder / "lost")), ("lot", str(runs))]
    (listed,) = json_of("status", "lot", "--jobs", *there)
    assert listed["job"] == first["job"]

    deadline = time.monotonic() + 300
    while not any(trial.intermediate_values for name in MEMBERS for trial in stored(runs, name, "pnp")):
        (listed,) = json_of("status", "lot", "--jobs", *there)
        assert listed["state"] in ("pending", "running"), holdout_here("logs", "lot", *there).stdout
        assert time.monotonic() < deadline, holdout_here("logs", "lot", *there).stdout
        time.sleep(0.1)
    assert json_of("stop", "lot", *there)["state"] == "stopped"
    assert any(not trial.state.is_finished() for name in MEMBERS for trial in stored(runs, name, "pnp"))
    assert "is not running: it has stopped" in printed("stop", "lot", *there)
    holdout_here("logs", "lot", "--follow", *there, "--json", code=1)
    said = holdout_here("logs", "lot", *there).stdout
    assert "Interrupted. The same command resumes" in plain(said)
    assert "SIGTERM" not in said
    assert "Traceback" not in said
    assert f"The search lot is in the runs folder {runs} of this cluster" in refusal(*submit, folder / "elsewhere")

    second = json_of(*submit, runs)
    assert second["attempt"] == 2
    said = printed("logs", "lot", "--follow", *there)
    assert re.search(r"trial \d+: .*all 20 epochs trained", said), said
    assert "OPENMP DISPLAY ENVIRONMENT" in said  # by the second node's worker
    followed = holdout_here("logs", "lot", "--follow", "--runs", runs, *there, "--json").stdout
    assert json.loads(followed)["state"] == "succeeded"
    return runs


def campaign(images: Path, **changes: Any) -> dict[str, Any]:
    """A campaign file of two searches with one trial each."""
    base = small_search(
        images, losses=["pnp"], search={"trials": 1}, stages=["search"], resources={"engine": "ray"}, **changes
    )
    del base["name"]
    base["training"]["epochs"] = EPOCHS
    return {
        "name": "lot",
        "study": "sizes of the embedding",
        "base": base,
        "vary": {"size": {"6": {"model.embedding_dim": 6}, "8": {"model.embedding_dim": 8}}},
        "table": {"rows": ["size"], "metrics": ["validation"]},
    }


def test_a_resumed_campaign_finishes_every_trial_once(runs: Path) -> None:
    for name in MEMBERS:
        (trial,) = stored(runs, name, "pnp")
        assert trial.state == TrialState.COMPLETE
        assert sorted(trial.intermediate_values) == list(range(1, EPOCHS + 1))
        tracking = f"sqlite:///{runs.parent}/{SECRET}/mlflow.db"
        assert_mlflow_equals_the_studies(runs, name, ("pnp",), "lot", tracking=tracking)


def test_status_asks_the_cluster(runs: Path, nodes: Nodes) -> None:
    there = json_of("status", "lot", "--address", nodes.address)
    assert there == json_of("status", "lot", "--runs", runs)
    assert [(entry["name"], entry["studies"][0]["complete"]) for entry in there] == [(name, 1) for name in MEMBERS]


def test_no_secret_is_printed_or_stored(runs: Path, nodes: Nodes) -> None:
    """Not in the runs folder, not by the jobs, not in their logs."""
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(nodes.address)
    jobs = client.list_jobs()
    told = [str(jobs), *(client.get_job_logs(job.submission_id) for job in jobs if job.submission_id)]
    written = [path.read_bytes() for path in runs.rglob("*") if path.is_file()]
    for secret in (SECRET, Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text()):
        assert not any(secret in text for text in told)
        assert not any(secret.encode() in content for content in written)


def test_mistakes_found_on_the_cluster_are_reported(runs: Path, nodes: Nodes) -> None:
    said = printed("logs", "lost", "--follow", "--address", nodes.address, code=2)
    assert "dataset.root is" in said
    assert "which does not exist" in said
    assert not (runs.parent / "lost").exists()


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}])
def test_a_command_without_token_is_refused(nodes: Nodes, header: dict[str, str]) -> None:
    for path in ("/api/jobs/", "/api/version"):
        with pytest.raises(HTTPError) as denied:
            urlopen(Request(nodes.address + path, headers=header), timeout=10)
        assert denied.value.code in (401, 403)
        denied.value.close()


def test_a_wrong_token_is_one_sentence(
    nodes: Nodes, search_file: SearchFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the dashboard, and of a driver that joins the cluster itself."""
    token = tmp_path / "token"
    token.write_text("0" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    assert "rejects this machine's token" in plain(
        holdout("status", "--jobs", "--address", nodes.address, code=2).stderr
    )
    token.chmod(0o600)
    monkeypatch.setenv("RAY_ADDRESS", nodes.gcs_address)
    file = write_search(tmp_path / "x.yaml", search_file(resources={"engine": "ray"}))
    said = plain(holdout("run", file, "--runs", tmp_path / "runs", code=1).stderr)
    assert f"Ray did not start at {nodes.gcs_address}" in said
    assert "token" in said
    assert not (tmp_path / "runs").exists()


def test_an_unknown_search_is_one_sentence(nodes: Nodes) -> None:
    said = refusal("status", "nothing", "--address", nodes.address)
    assert said.startswith("There is no search 'nothing' in ")
    for word in ("logs", "stop"):
        said = refusal(word, "nothing", "--address", nodes.address)
        assert f"There is no search 'nothing' on the cluster at {nodes.address}" in said


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": {"weights": "w.safetensors"}}, "model.weights must be an absolute path on the cluster"),
        ({"tracking": {"uri": "sqlite:///x.db"}}, "tracking.uri must be an absolute path on the cluster"),
        ({"vary": {"size": {"6": {}, "8": {"dataset.root": "images"}}}}, "^8: dataset.root must be an absolute path"),
        ({"vary": {"size": {"6": {}, "8": {"space.pnp.alpha": -5}}}}, "^8: space.pnp.alpha"),
        ({"recipe": "mine.yaml"}, "recipe is 'mine.yaml', but the cluster has only the recipes that come with Holdout"),
    ],
)
def test_mistakes_visible_here_are_refused_here(changes: dict[str, Any], sentence: str) -> None:
    content = (campaign if changes.keys() & {"vary", "recipe"} else small_search)(Path("/on/the/cluster"))
    assert yaml.safe_load(submission(content).text) == content, "data there is checked there"
    with pytest.raises(InvalidInput, match=sentence):
        submission({**content, **changes})
