"""A real campaign of two cross-validated searches through Ray, killed in the middle of a fold."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
from optuna.trial import TrialState
from support.commands import holdout, kill_when, plain, stored, summary, write_search
from support.mlflow_rows import assert_mlflow_equals_the_studies
from support.services import needs_ray
from support.small_search import draw_folder, small_search

from search.trials import epochs_of

# Minutes long, as what breaks a cluster; a stopped campaign is in test_cluster too.
pytestmark = [pytest.mark.cluster, needs_ray]

GP, CMAES = NAMES = ("lot-gp", "lot-cmaes")
LOSS = "proxy_anchor"
TRIALS = {GP: 6, CMAES: 4}  # a Gaussian process models from the fifth on
EPOCHS, FOLDS, SEEDS = 3, 2, 2


class CampaignRun:
    """The folders of one campaign."""

    def __init__(self, path: Path) -> None:
        self.runs = path / "runs"
        base = small_search(
            draw_folder(path / "images"),  # half of its classes make two merged ones a fold
            split={"folds": FOLDS, "merge": 2},
            training={"epochs": EPOCHS, "batch_size": 10, "image_size": 16},
            losses=[LOSS],
            search={"pruner": "none"},
            selection={"finalists": 1, "seeds": 1},
            final={"seeds": SEEDS},
            resources={"engine": "ray"},
        )
        del base["name"]
        self.content = {
            "name": "lot",
            "study": "samplers with a model",
            "base": base,
            "vary": {
                "sampler": {
                    "gp": {"search.sampler": "gp", "search.trials": TRIALS[GP]},
                    "cmaes": {
                        "search.sampler": "cmaes",
                        "search.trials": TRIALS[CMAES],
                        "final.train_on": "all",
                    },
                }
            },
            "table": {"rows": ["sampler"], "metrics": ["validation", "recall_at_1"]},
        }
        self.file = write_search(path / "lot.yaml", self.content)
        self.command = ("run", self.file, "--runs", self.runs)

    def amid_the_second_fold(self) -> bool:
        """Whether a trial of a search is there, and has not come to its end without a driver."""
        return any(
            trial.state == TrialState.RUNNING
            and EPOCHS < len(epochs_of(trial)) < FOLDS * EPOCHS
            and (self.runs / name / f"trials/{LOSS}/{trial.number:04d}/fold-2/attempt-1/last.pt").exists()
            for name in NAMES
            for trial in stored(self.runs, name, LOSS)
        )


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> CampaignRun:
    """A campaign that was killed and went on; the tests below look at what it left."""
    ran = CampaignRun(tmp_path_factory.mktemp("campaign"))
    while not ran.amid_the_second_fold():
        kill_when(ran.amid_the_second_fold, *ran.command)
        time.sleep(3)  # its workers outlive it for a moment, in which they may end their fold
    assert {file.name for file in (ran.runs / "lot").iterdir()} == {".id", "campaign.yaml"}
    done = holdout(*ran.command)
    shown = plain(done.stdout)
    assert "this test set: 1 opening by 2 searches" in shown
    assert "lot-cmaes" in shown
    return ran


def test_nothing_is_lost_and_nothing_doubled(ran: CampaignRun) -> None:
    models = {GP: FOLDS, CMAES: 1}
    for name in NAMES:
        counts = summary(ran.runs, name)["losses"][LOSS]["trials"]
        assert counts == {"complete": TRIALS[name], "pruned": 0, "failed": 0}
        for study in (LOSS, f"{LOSS}@confirm", f"{LOSS}@final"):
            trials = stored(ran.runs, name, study)
            assert {trial.state for trial in trials} == {TrialState.COMPLETE}
            attributes = [
                [trial.user_attrs.get(key) for key in ("source_trial", "seed", "fold", "half")] for trial in trials
            ]
            assert len({tuple(each) for each in attributes}) == len(attributes)
        configurations = {trial.user_attrs["source_trial"] for trial in trials}
        assert len(trials) == len(configurations) * SEEDS * models[name]
        assert_mlflow_equals_the_studies(ran.runs, name, (LOSS,), experiment_name="lot")
        assert not list((ran.runs / name / "trials").rglob("last.pt"))


def test_a_killed_cross_validation_went_on_in_its_fold(ran: CampaignRun) -> None:
    """What the first attempt trained, whole folds and a part of one, is on record with its first times."""
    stops = []
    for attempt in ran.runs.glob(f"lot-*/trials/{LOSS}/*/fold-2/attempt-2"):
        name, number = attempt.parts[-6], int(attempt.parts[-3])
        starts = [record["start"] for record in epochs_of(stored(ran.runs, name, LOSS)[number])]
        assert starts == sorted(starts)
        stops += [epochs for epochs, (before, after) in enumerate(pairwise(starts), start=1) if after - before > 2]
    assert any(epochs > EPOCHS for epochs in stops), "no trial was taken up in its second fold"
