"""What a search hands out: the model that the rule names, which embeds as the test did and needs no search any more."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from optuna.trial import TrialState, create_trial
from support.commands import holdout_here, plain
from support.kinds import FinishedCampaign

import holdout
from search.records.records import Records, stored_search
from search.records.retrieval_file import RetrievalFile
from search.records.runs import RunFolder
from search.records.selection import Confirmation, Selection, exported_trial
from search.show.model_cards import model_folder
from trainables.training.spec import derived_seed


def kept_of(runs: Path, model: holdout.Embedder) -> tuple[RetrievalFile, list[Path]]:
    """Return the rankings that the test of ``model`` kept, and the test images."""
    (opening,) = json.loads((runs / "small/test.json").read_text())["openings"]
    folder = runs / "small/test" / opening["id"]
    name = f"{model.spec.origin['study']}-{model.spec.origin['trial']}.npz"
    keys = np.load(folder / name)["keys"]
    return RetrievalFile.read(folder / "retrieval" / name), [runs.parent / "images" / key for key in keys]


def test_the_chosen_model_embeds_bit_for_bit_as_the_test_did(tested: Path) -> None:
    torch.set_num_threads(1)
    model = holdout.open("small", runs=tested).best_model("proxy_anchor", device="cpu")
    kept, images = kept_of(tested, model)
    embeddings_ND = model.embed(images)
    assert np.array_equal(embeddings_ND[kept.sample_S].astype(np.float16), kept.embeddings_SD)
    similar_QN = embeddings_ND[kept.queries_Q].astype(np.float64) @ embeddings_ND.T.astype(np.float64)
    similar_QN[np.arange(len(similar_QN)), kept.queries_Q] = -np.inf
    assert np.array_equal(similar_QN.argmax(axis=1), kept.neighbours_QK[:, 0])


def test_it_is_the_first_seed_s_of_the_first_fold_whatever_it_scored(tested: Path) -> None:
    search = stored_search(tested, "small")
    selection = Selection.load(search.folder.selection)
    for loss, chosen in selection.chosen.items():
        origin = json.loads((search.folder.model(loss) / "model.json").read_text())["origin"]
        finals = search.trials_of(f"{loss}@final")
        same = [trial for trial in finals if trial.user_attrs["source_trial"] == chosen.number]
        assert origin["trial"] == min(trial.number for trial in same)
        first = finals[origin["trial"]]
        assert (origin["fold"], origin["role"], first.user_attrs["fold"]) == (1, "tuned", 1)
        assert origin["seed"] == derived_seed(first.user_attrs["seed"], "fold", 1)
        assert origin["hyperparameters"].items() <= chosen.params.items()
        assert (origin["selection"], origin["split"]) == (selection.digest, selection.split_digest)


def test_where_the_first_training_failed_it_is_the_next_one_s() -> None:
    chosen = Confirmation(number=4, params={}, searched=(), values=(0.5,), classes={}, best_epochs=(1,), failed=0)
    trials = [
        create_trial(state=state, value=0.5 if state == TrialState.COMPLETE else None, user_attrs={"source_trial": of})
        for state, of in ((TrialState.COMPLETE, 0), (TrialState.FAIL, 4), *[(TrialState.COMPLETE, 4)] * 2)
    ]
    assert exported_trial(trials, chosen) is trials[2]
    assert exported_trial(trials[:2], chosen) is None


def test_its_card_claims_no_more_than_holds(lot: FinishedCampaign, tmp_path: Path) -> None:
    """The models of ``final.train_on: all`` learned from the validation classes; of an opened test set, too."""
    shutil.copytree(lot.runs, tmp_path / "runs")
    folder = RunFolder(tmp_path / "runs", "lot-all")
    assert "for validation after each epoch" not in folder.model("pnp").joinpath("README.md").read_text()
    lines = folder.openings.read_text().splitlines()
    opening = json.loads(lines[0])
    earlier = [{**opening, "id": name, "selections": {name: name}} for name in ("first", "second")]
    read = {**json.loads(lines[1]), "read": "first"}
    before = [*earlier, read, {**read, "read": "second"}]
    folder.openings.write_text("".join(f"{line}\n" for line in (*map(json.dumps, before), *lines)))
    shutil.rmtree(folder.model("pnp"))
    card = model_folder(Records(folder), "pnp").joinpath("README.md").read_text()
    assert "took no part" not in card
    assert "by trainings that were scored on classes they had not seen, and tested it on test classes; below" in card
    assert "openings of these classes before this choice's: 2" in card


def test_the_folder_is_made_again_where_it_is_gone(copied: Path) -> None:
    folder = copied / "small/models"
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
    assert len(before) == 6
    shutil.rmtree(folder)
    for loss in ("pnp", "proxy_anchor"):
        holdout.open("small", runs=copied).best_model(loss)
    assert {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")} == before


def test_an_export_that_is_refused_writes_nothing(
    tested: Path, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = copied / "small/search.yaml"
    file.write_text(file.read_text().replace(str(tested.parent / "images"), str(tmp_path / "gone")))
    (tmp_path / "here" / "there").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    for runs, more, says in (
        (tested, ("--to", "there"), "--to is 'there', which already exists; name a new folder."),
        (tested, ("--to", "new", "--loss", "mpq"), "small has no loss 'mpq'"),
        (copied, ("--to", "new"), "dataset.root"),
    ):
        assert says in plain(holdout_here("export", "small", *more, "--runs", runs, code=2).stderr)
        assert [path.name for path in Path().rglob("*")] == ["there"]
