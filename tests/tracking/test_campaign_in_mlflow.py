"""A campaign in MLflow: a run with its table above the runs of its searches."""

from pathlib import Path

from mlflow import MlflowClient
from support.commands import holdout_here, stored
from support.kinds import FinishedCampaign
from support.mlflow_rows import assert_mlflow_equals_the_studies, everything_in
from support.tampered import Copied

STUDIES = ("pnp", "pnp@confirm", "pnp@final")


def test_a_sync_shows_the_campaign_above_its_searches_once(lot: FinishedCampaign, tmp_path: Path) -> None:
    runs = Copied(lot.runs, tmp_path / "runs", "lot").runs
    names = [member.config.name for member in lot.campaign.members]
    trials = sum(len(stored(runs, name, study)) for name in names for study in STUDIES)
    rows = []
    for _ in range(2):
        done = holdout_here("sync", "lot", "--runs", runs)
        assert f"all {trials} trials of lot" in done.stdout
        rows.append(everything_in(runs / "mlflow.db"))
    assert rows[0] == rows[1]

    for name in names:
        assert_mlflow_equals_the_studies(runs, name, ("pnp",), experiment_name="lot")
    client = MlflowClient(f"sqlite:///{runs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("lot")
    assert experiment is not None
    (whole,) = client.search_runs([experiment.experiment_id], "tags.`holdout.kind` = 'campaign'")
    assert whole.info.run_name == "lot"
    assert whole.info.status == "FINISHED"
    below = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{whole.info.run_id}'")
    assert {run.info.run_name for run in below} == {*names}
    assert {entry.path for entry in client.list_artifacts(whole.info.run_id)} == {
        "campaign.yaml",
        "campaign.json",
        "table.md",
        "table.csv",
    }
    assert whole.data.metrics["epochs/search"] == lot.result.epochs["search"]
    assert "| pnp" in whole.data.tags["mlflow.note.content"]
