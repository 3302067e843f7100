"""A wheel installed from a package index's files: a light one beside the index's package ``spaces``, then all of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image
from support.commands import ROOT, plain
from support.finished_search import finish

from search.packages import EXTRA

pytestmark = pytest.mark.wheel
UV = Path(sys.executable).with_name("uv")
SEARCH = {
    "name": "small",
    "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4, "size": 16},
    "model": {"backbone": "convnet", "embedding_dim": 8},
    "training": {"epochs": 2, "batch_size": 10, "image_size": 16},
    "losses": ["mpa", {"name": "circle", "part": "mylab:CircleLoss"}],
    "search": {"trials": 3, "sampler": "random", "pruner": "none"},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 2},
}


class Installation:
    """A virtual environment, and commands in it that see nothing of the repository."""

    def __init__(self, folder: Path, here: Path) -> None:
        self.folder, self.here = folder, here
        subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)

    def install(self, *wanted: str) -> None:
        """Install packages in the versions of the repository's pins."""
        command = [UV, "pip", "install", "--quiet", "--python", self.folder / "bin" / "python"]
        subprocess.run([*command, "--constraint", ROOT / "constraints.txt", *wanted], check=True, cwd=self.here)

    def python(self, program: str) -> str:
        """Run ``program``; return what it prints."""
        return self._run("python", "-c", program)

    def holdout(self, *arguments: str | Path, code: int = 0) -> str:
        """Run the program; return what it prints, of both kinds."""
        return plain(self._run("holdout", *arguments, code=code))

    def _run(self, program: str, *arguments: str | Path, code: int = 0) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "XDG_"))}
        done = subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=self.here, env={**kept, "HOME": str(self.here), "OMP_NUM_THREADS": "1"},
            check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([UV, "build", "--quiet", "--out-dir", folder, ROOT], check=True)  # an sdist, and a wheel from it
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a loss of their own, a search file, an image."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "mylab.py").write_text((ROOT / "examples" / "circle_loss.py").read_text())
    (folder / "small.yaml").write_text(yaml.safe_dump(SEARCH))
    (folder / "photos").mkdir()
    for name, grey in {"a": 40, "b": 200}.items():
        Image.new("RGB", (16, 16), (grey, grey, grey)).save(folder / "photos" / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def light(wheel: Path, here: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    installation = Installation(tmp_path_factory.mktemp("light") / "venv", here)
    installation.install(str(wheel))
    return installation


@pytest.fixture(scope="module")
def full(light: Installation, wheel: Path) -> Installation:
    """The same environment with the extra, which nobody has before the tests of the light one have run."""
    light.install(f"holdout-dml[search] @ {wheel.as_uri()}")
    return light


@pytest.fixture(scope="module")
def of_repository(here: Path) -> Path:
    """The runs folder with the search as the repository runs it."""
    runs = here / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(here))
        return finish(runs, SEARCH)


def test_a_light_installation_names_what_it_lacks(light: Installation) -> None:
    names = {path.name for path in light.folder.glob("lib/python*/site-packages/*")}
    assert "holdout" in names
    assert not names & {"search", "spaces", "trainables", *EXTRA}
    assert "warning extra not installed: " + ", ".join(EXTRA) in light.holdout("doctor")
    refused = light.holdout("run", "small.yaml", "--runs", "others", code=2)
    assert refused.endswith("run `pip install 'holdout-dml[search]'`.")
    assert not (light.here / "others").exists()


def test_a_light_installation_reads_what_the_repository_wrote(light: Installation, of_repository: Path) -> None:
    for command in ("status", "trials", "compare", "verify", "report"):
        light.holdout(command, "small", "--runs", of_repository, *(["--trust-code"] if command == "verify" else []))
    said = light.python(
        "import holdout\n"
        f"model = holdout.load({str(of_repository / 'small' / 'models' / 'mpa')!r})\n"
        "print(model.embed('photos').shape, holdout.evaluate([[1, 0], [1, .1], [0, 1], [.1, 1]], [0, 0, 1, 1]))\n"
    )
    assert "(2, 8) {'recall_at_1': 1.0, 'map_at_r': 1.0}" in said
    assert "ok Its gradients agree with finite differences." in light.holdout("check", "mylab:CircleLoss")


def test_the_package_spaces_of_the_index_is_beside_it(light: Installation) -> None:
    light.install("spaces")
    assert "decorator.py" in light.python("import holdout, spaces; print(spaces.GPU.__code__.co_filename)")
    light.holdout("check", "proxy_anchor")


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_full_installation_finds_the_same(full: Installation, of_repository: Path, engine: str) -> None:
    runs = full.here / engine
    full.holdout("run", "small.yaml", "--runs", runs, "--set", f"resources.engine={engine}")
    ours, theirs = (json.loads((at / "small" / "summary.json").read_text()) for at in (of_repository, runs))
    for loss in ("mpa", "circle"):
        assert theirs["losses"][loss]["best"] == ours["losses"][loss]["best"]
        assert theirs["losses"][loss]["tuned"]["test"] == ours["losses"][loss]["tuned"]["test"]
    full.holdout("verify", "small", "--runs", runs)


def test_mlflow_loads_a_model_with_the_code_that_is_in_it(full: Installation) -> None:
    full.holdout("sync", "small", "--register", "--runs", "local")
    said = full.python(
        "import mlflow, pandas\n"
        "mlflow.set_tracking_uri('sqlite:///local/mlflow.db')\n"
        "loaded = mlflow.pyfunc.load_model('models:/small/1')\n"
        "image = open('photos/a.png', 'rb').read()\n"
        "embeddings = loaded.predict(pandas.DataFrame({'image': [image]}))['embedding']\n"
        "import holdout.trainables\n"
        "print(len(embeddings[0]), holdout.trainables.__file__)\n"
    )
    width, file = said.splitlines()[-1].split()
    assert width == "8"
    assert file.endswith("code/trainables.zip/holdout/trainables/__init__.py")
