"""A campaign in MLflow: a run with its table above the runs of its searches."""

import sqlite3
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from support.commands import holdout_here
from support.finished_search import run_here
from support.mlflow_rows import assert_mlflow_equals_the_studies

from search.campaigns.result import campaign_family, campaign_result
from search.config.campaign import parse_campaign
from search.plan.runs import CampaignFolder
from search.report.summary import write_summary

CONTENT: dict[str, Any] = {
    "name": "lot",
    "study": "Two seeds.",
    "base": {
        "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 6, "size": 20},
        "model": {"embedding_dim": 8},
        "training": {"epochs": 1, "batch_size": 10, "images_per_class": 5, "image_size": 16},
        "losses": ["pnp"],
        "search": {"trials": 1},
        "selection": {"finalists": 1, "seeds": 1},
        "final": {"seeds": 1},
    },
    "vary": {"seed": {"one": {}, "two": {"search.seed": 1}}},
    "table": {"rows": ["seed"], "metrics": ["validation", "recall_at_1"]},
}
NAMES = ("lot-one", "lot-two")


def test_a_sync_shows_the_campaign_above_its_searches_once(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    campaign = parse_campaign(CONTENT)
    folder = CampaignFolder(runs, campaign.name)
    folder.begin(campaign.config)
    files = [member.config.model_dump(mode="json", by_alias=True) for member in campaign.members]
    searches = run_here(runs, files, opener=campaign.name, family=campaign_family(campaign))
    result = campaign_result(campaign, [(search, write_summary(search)) for search in searches])
    assert [folder.end(result.model_dump(mode="json")) for _ in range(2)] == [True, False]
    for search in searches:
        search.close()

    trials = 2 * (1 + 2 + 1)  # a confirmation trains on either half
    rows = []
    for _ in range(2):
        done = holdout_here("sync", "lot", "--runs", runs)
        assert f"all {trials} trials of lot" in done.stdout
        with sqlite3.connect(runs / "mlflow.db") as database:
            rows.append(list(database.iterdump()))
    assert rows[0] == rows[1]

    for name in NAMES:
        assert_mlflow_equals_the_studies(runs, name, ("pnp",), experiment_name="lot")
    client = MlflowClient(f"sqlite:///{runs / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("lot")
    assert experiment is not None
    (whole,) = client.search_runs([experiment.experiment_id], "tags.`holdout.kind` = 'campaign'")
    assert whole.info.run_name == "lot"
    assert whole.info.status == "FINISHED"
    below = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{whole.info.run_id}'")
    assert {run.info.run_name for run in below} == {*NAMES}
    assert {entry.path for entry in client.list_artifacts(whole.info.run_id)} == {
        "campaign.yaml",
        "campaign.json",
        "table.md",
        "table.csv",
    }
    assert whole.data.metrics["epochs/search"] == result.epochs["search"]
    assert "| one" in whole.data.tags["mlflow.note.content"]
