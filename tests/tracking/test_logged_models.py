"""The chosen models in MLflow: logged with their metrics, registered, loaded and served."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import mlflow.pyfunc
import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelStatus
from mlflow.pyfunc.scoring_server import init
from PIL import Image
from support.commands import holdout_here, plain
from support.finished_search import recorded
from support.kinds import Finished
from support.mlflow_database import write_migrated
from support.services import MlflowServer
from support.serving import asked
from support.tampered import Copied

import holdout
from search.driver.make_plan import read_plan
from search.driver.synchronise import make_projection, model_content, register, synchronise
from search.records.writable import WritableRecords, open_search
from search.results.comparison import summary_of
from search.tracking.client import downloaded_model
from search.tracking.models import keep_model
from search.tracking.summary_runs import Content
from trainables.common.errors import InvalidInput

LOSSES = ("pnp", "triplet")
PROGRAM = """
import json, sys
import mlflow.pyfunc, pandas as pd

model = mlflow.pyfunc.load_model(sys.argv[1])
import trainables

images = pd.DataFrame({"image": [open(path, "rb").read() for path in sys.argv[2:]]})
ours = sorted({name.partition(".")[0] for name in sys.modules} & {"search", "holdout", "ray", "optuna"})
embeddings = [list(map(float, row)) for row in model.predict(images)["embedding"]]
print(json.dumps([trainables.__file__, ours, embeddings]))
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlflow") / "mlflow.db"


@pytest.fixture(scope="module")
def server(database: Path, kinds: Callable[[str], Finished]) -> Iterator[str]:
    """The address of an MLflow server, set for MLflow's tools too; it starts while the search is trained."""
    write_migrated(database)
    started = MlflowServer(database.parent)
    try:
        with ThreadPoolExecutor(1) as beside:
            answers = beside.submit(started.start)
            kinds("images")
            answers.result()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_URI", started.url)
            yield started.url
    finally:
        started.stop()


@pytest.fixture(scope="module")
def search(server: str, kinds: Callable[[str], Finished], tmp_path_factory: pytest.TempPathFactory) -> WritableRecords:
    """A finished search whose models are logged and registered."""
    runs = Copied(kinds("images").runs, tmp_path_factory.mktemp("models") / "runs").runs
    search = open_search(read_plan({**kinds("images").content, "tracking": {"uri": server}}, runs))
    synchronise(recorded(search), make_projection(search.plan))
    register(recorded(search), make_projection(search.plan), "small")
    return search


@pytest.fixture(scope="module")
def client(server: str) -> MlflowClient:
    return MlflowClient(server)


@pytest.fixture(scope="module")
def images(image_folder: Path) -> list[Path]:
    return sorted(image_folder.rglob("*.png"))[::40]


def logged(client: MlflowClient) -> dict[str, LoggedModel]:
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    found = client.search_logged_models([experiment.experiment_id])
    assert len(found) == len(LOSSES)
    return {model.tags["holdout.loss"]: client.get_logged_model(model.model_id) for model in found}


def embeddings_of(search: WritableRecords, loss: str, images: list[Path]) -> np.ndarray:
    return holdout.load(search.folder.model(loss), device="cpu").embed(images)


def test_the_chosen_model_of_each_loss_is_one_of_its_run(search: WritableRecords, client: MlflowClient) -> None:
    summary = summary_of(recorded(search))
    for loss, model in logged(client).items():
        assert (model.name, model.status, model.model_type) == (loss, LoggedModelStatus.READY, "embedder")
        run = client.get_run(model.source_run_id)
        assert (run.data.tags["holdout.kind"], run.data.tags["holdout.loss"]) == ("loss", loss)
        assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
        entry = summary.losses[loss]
        assert entry.test is not None
        assert entry.chosen is not None
        means = {f"test/{name}": entry.test[name].mean for name in ("map_at_r", "recall_at_1")}
        assert {metric.key: metric.value for metric in model.metrics} == means
        assert model.params == {name: str(value) for name, value in (entry.chosen.params or {}).items()}
        low, high = entry.test["map_at_r"].ci95 or (0.0, 0.0)
        tags = {
            "holdout.test.map_at_r": f"{entry.test['map_at_r'].mean:.3f} [{low:.3f}, {high:.3f}]",
            "holdout.search": "small",
            "holdout.split": search.plan.split.digest,
            "holdout.selection": json.loads(search.folder.selection.read_text())["digest"],
        }
        assert tags.items() <= model.tags.items()
        assert model.tags["mlflow.note.content"].startswith(f"# small: {loss}")


def test_nothing_of_it_is_a_pickle(search: WritableRecords, client: MlflowClient, database: Path) -> None:
    for loss, model in logged(client).items():
        assert model.artifact_location.startswith("mlflow-artifacts:/")
        (artifact,) = (database.parent / "mlartifacts").rglob(f"{model.model_id}/artifacts")
        files = [path for path in artifact.rglob("*") if path.is_file()]
        assert {str(path.relative_to(artifact)) for path in files} == {
            "MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt",
            "input_example.json", "serving_input_example.json",
            "code/served_model.py", "code/trainables.zip",
            "data/model/README.md", "data/model/model.json", "data/model/model.safetensors",
        }  # fmt: skip
        assert {Path(name).suffix for name in ZipFile(artifact / "code" / "trainables.zip").namelist()} == {".py"}
        assert "pickle" not in (artifact / "MLmodel").read_text() + (artifact / "conda.yaml").read_text()
        written = search.folder.model(loss)
        assert {path.name: path.read_bytes() for path in (artifact / "data" / "model").iterdir()} == {
            path.name: path.read_bytes() for path in written.iterdir()
        }
        pinned = (artifact / "requirements.txt").read_text().split()
        assert {line.partition("==")[0] for line in pinned} == {
            "mlflow", "numpy", "pillow", "safetensors", "torch", "torchvision",
        }  # fmt: skip
        assert all("==" in line and "+" not in line for line in pinned)


def test_registered_once_and_the_recommended_one_is_champion(search: WritableRecords, client: MlflowClient) -> None:
    chosen = json.loads(search.folder.selection.read_text())["chosen"]
    best = max(chosen, key=lambda loss: np.mean(chosen[loss]["values"]))
    models = logged(client)
    versions = {version.tags["holdout.loss"]: version for version in client.search_model_versions("name = 'small'")}
    assert versions.keys() == models.keys() == set(LOSSES)
    assert client.get_registered_model("small").aliases == {"champion": str(versions[best].version)}
    for loss, version in versions.items():
        assert version.run_id == models[loss].source_run_id
        assert version.source == models[loss].artifact_location
        assert version.description == models[loss].tags["mlflow.note.content"]
        assert version.tags["holdout.test.map_at_r"] == models[loss].tags["holdout.test.map_at_r"]
        linked = json.loads(models[loss].tags["mlflow.modelVersions"])
        assert [(entry["name"], int(entry["version"])) for entry in linked] == [("small", int(version.version))]


def test_what_a_killed_process_left_is_completed_and_another_model_is_another_one(
    search: WritableRecords, server: str, client: MlflowClient, tmp_path: Path
) -> None:
    wanted = model_content(recorded(search), "pnp")
    experiment = client.create_experiment("killed")
    run = client.create_run(experiment).info.run_id

    class Killed(MlflowClient):
        def log_model_artifacts(self, model_id: str, local_dir: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_model(Killed(server), run, "pnp", wanted, 1)
    (left,) = client.search_logged_models([experiment])
    assert left.status == LoggedModelStatus.PENDING
    assert keep_model(client, run, "pnp", wanted, 1) == left.model_id
    assert client.get_logged_model(left.model_id).status == LoggedModelStatus.READY
    assert [output.model_id for output in client.get_run(run).outputs.model_outputs] == [left.model_id]

    (folder,) = wanted.files
    other = {path.name: path.read_bytes() for path in folder.iterdir()}
    content = {**json.loads(other["model.json"]), "weights_sha256": "0" * 64}
    for name, part in {**other, "model.json": json.dumps(content).encode()}.items():
        (tmp_path / name).write_bytes(part)
    found = keep_model(client, run, "pnp", replace(wanted, files=[tmp_path]), 2)
    assert {model.model_id for model in client.search_logged_models([experiment])} == {left.model_id, found}
    assert found != left.model_id


def test_the_alias_moves_and_those_of_users_stay(search: WritableRecords, client: MlflowClient) -> None:
    models = {loss: (model.model_id, Content()) for loss, model in logged(client).items()}
    name = "small-aliases"
    for best in ("pnp", "pnp", "triplet", "pnp"):
        versions = make_projection(search.plan).register(name, "", best, models)
        assert client.get_registered_model(name).aliases == {"champion": versions[best]}
        assert sorted(versions.values()) == ["1", "2"]
    client.set_registered_model_alias(name, "production", "1")
    make_projection(search.plan).register(name, "", "pnp", models)
    assert client.get_registered_model(name).aliases == {"champion": versions["pnp"], "production": "1"}


def test_the_command_registers_under_another_name_but_nobody_elses(
    search: WritableRecords, client: MlflowClient
) -> None:
    there = ("--register", "--runs", search.folder.runs, "--trust-code")
    (synced,) = json.loads(holdout_here("sync", "small", "--as", "shop", *there, "--json").stdout)
    (said,) = synced["registered"]
    assert said["name"] == "shop"
    assert {version.tags["holdout.loss"] for version in client.search_model_versions("name = 'shop'")} == set(LOSSES)
    assert client.get_registered_model("shop").aliases == {"champion": said["versions"][said["best"]]}
    client.create_registered_model("theirs")
    for name, said in (("theirs", "MLflow already has a registered model theirs"), ("a/b", "--as is 'a/b'")):
        assert said in plain(holdout_here("sync", "small", "--as", name, *there, code=2).stderr)


def test_a_model_is_loaded_from_its_address(
    search: WritableRecords, client: MlflowClient, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {
        version.tags["holdout.loss"]: version.version for version in client.search_model_versions("name='small'")
    }
    aliased = client.get_registered_model("small").aliases["champion"]
    best, other = sorted(LOSSES, key=lambda loss: str(versions[loss]) != aliased)
    models = logged(client)
    for address, loss in (
        ("models:/small@champion", best),
        (f"models:/small/{versions[other]}", other),
        (f"models:/{models[other].model_id}", other),
        (f"runs:/{models[other].source_run_id}/{other}", other),
    ):
        model = holdout.load(address, device="cpu")
        assert model.address == address, "an index would name a folder that is gone with this process"
        assert np.array_equal(model.embed(images), embeddings_of(search, loss, images))
    for address, sentence in {
        "models:/small@nobody": "There is no model models:/small@nobody at http",
        f"runs:/{client.get_model_version('small', '1').run_id}/other": "There is no model runs:/",
        "models:/small": "A model in MLflow is models:/NAME@ALIAS",
    }.items():
        with pytest.raises(InvalidInput, match=sentence):
            downloaded_model(address)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(InvalidInput, match=r"MLflow at http://127[.]0[.]0[.]1:9 cannot provide the model"):
        downloaded_model("models:/small/1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(InvalidInput, match="set MLFLOW_TRACKING_URI, as in"):
        downloaded_model("models:/small/1")


@pytest.mark.slow
def test_mlflow_loads_it_with_its_own_code_alone(
    search: WritableRecords, champion: str, images: list[Path], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", PROGRAM, "models:/small@champion", *map(str, images)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code, ours, embeddings = json.loads(done.stdout)
    assert Path(code).parts[-4:] == ("code", "trainables.zip", "trainables", "__init__.py")
    assert ours == []
    assert np.array_equal(np.array(embeddings, np.float32), embeddings_of(search, champion, images))


# Served as by ``mlflow models serve``.


@pytest.fixture(scope="module")
def champion(search: WritableRecords, client: MlflowClient) -> str:
    return str(client.get_model_version_by_alias("small", "champion").tags["holdout.loss"])


@pytest.fixture(scope="module")
def served(champion: str) -> Iterator[Any]:
    """The app of MLflow's server for the champion, with the code in the artifact, and the package of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        yield init(mlflow.pyfunc.load_model("models:/small@champion"))


def answer(app: Any, images: list[Any]) -> tuple[int, dict[str, Any]]:
    """Return the response of ``app`` for ``images``, given as JSON values."""
    body = json.dumps({"dataframe_records": [{"image": image} for image in images]}).encode()
    headers = ((b"host", b"localhost"), (b"content-type", b"application/json"))
    status, _, text = asked(app, "/invocations", "", *headers, method="POST", body=body)
    return status, json.loads(text)


def test_a_served_model_answers_with_embeddings(
    search: WritableRecords, served: Any, champion: str, images: list[Path]
) -> None:
    for given in (
        [base64.b64encode(path.read_bytes()).decode() for path in images],
        [np.asarray(Image.open(path)).tolist() for path in images],
    ):
        code, content = answer(served, given)
        assert code == 200, content
        found = np.array([entry["embedding"] for entry in content["predictions"]], np.float32)
        assert np.array_equal(found, embeddings_of(search, champion, images))


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (base64.b64encode(b"no image").decode(), "not an image of a known format"),
        ([[0, 300], [1, 2]], "an array must be uint8"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(served: Any, images: list[Path], image: Any, reason: str) -> None:
    code, content = answer(served, [base64.b64encode(images[0].read_bytes()).decode(), image])
    assert code == 400
    assert "1 of 2 images cannot be read: image 1" in content["message"]
    assert reason in content["message"]
    assert "Traceback" not in json.dumps(content)
