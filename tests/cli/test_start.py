"""No command imports a library that it does not use."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import refusal
from support.driving import Opened, drive
from support.small_search import SearchFile

from search.driver.finish import write_summary
from search.packages import EXTRA

HEAVY = ("torch", "torchvision", "ray", "mlflow", "faiss", "scipy", "sklearn", "pandas", "plotly")
STUDIES = ("optuna", "sqlalchemy", "alembic")
PROGRAM = """
import contextlib, io, json, sys
from holdout.cli.main import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["holdout", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said := io.StringIO()):
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules}), said.getvalue()]))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, search_made: Opened) -> Path:
    """A runs folder with a search whose first stage is done."""
    runs = tmp_path_factory.mktemp("start") / "runs"
    search = search_made(runs, losses=["pnp"], search={"trials": 2})
    drive(search)
    write_summary(search)
    return runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, search_made: Opened) -> tuple[Path, Path]:
    """A runs folder with a finished search, and its file; its best trial is at an edge of the space."""
    folder = tmp_path_factory.mktemp("finished")
    model = {"backbone": "resnet18", "embedding_dim": 8}
    space = {"pnp": {"alpha": [1.0, 2.0, 4.0, 8.0]}}
    search = {"trials": 40, "sampler": "random", "pruner": "none"}
    opened = search_made(folder / "runs", model=model, losses=["pnp"], search=search, space=space, stages=["search"])
    drive(opened, lambda running, epoch: running.spec.hyperparameters.get("alpha", 0) / 10)
    assert write_summary(opened).losses["pnp"].diagnostics, "nothing that torch would be asked for"
    file = folder / "search.yaml"
    file.write_text(opened.config.to_yaml())
    return folder / "runs", file


NOTHING = {*HEAVY, *STUDIES, "numpy"}
ROWS: list[tuple[str, int, set[str]]] = [
    # Help and mistyped commands.
    ("--help", 0, NOTHING | {"yaml"}),
    ("--version", 0, NOTHING | {"yaml"}),
    ("run --help", 0, NOTHING | {"yaml"}),
    ("rnu", 2, NOTHING | {"yaml"}),
    # Where a model has nothing to do, and the progress of searches.
    ("embed model photos --to a.csv", 2, NOTHING),
    (f"index model photos --to {__file__}", 2, NOTHING),
    ("query no x", 2, NOTHING),
    ("status --runs RUNS", 0, NOTHING),
    # Lists, and mistakes of a search file.
    ("keys lr", 0, {*HEAVY, "sqlalchemy", "alembic"}),
    ("losses", 0, {*HEAVY, "sqlalchemy", "alembic"}),
    ("backbones", 0, {*HEAVY, "sqlalchemy", "alembic"}),
    ("datasets", 0, {*HEAVY, "sqlalchemy", "alembic"}),
    ("papers", 0, {*HEAVY, "sqlalchemy", "alembic"}),
    ("status --jobs --address nonsense", 2, {*HEAVY, "sqlalchemy", "alembic"}),
    ("run no-such-recipe", 2, {*HEAVY, "sqlalchemy", "alembic"}),
    ("run WRONG --runs RUNS", 2, {*HEAVY}),
    # The studies of searches; a comparison computes with scipy, and a figure with scikit-learn.
    ("trials small --runs RUNS", 0, {*HEAVY}),
    ("trials small pnp 0 --runs RUNS", 0, {*HEAVY}),
    ("disk --runs RUNS", 0, {*HEAVY}),
    ("compare small --runs RUNS", 0, {*HEAVY} - {"scipy"}),
    # A finished search is printed without what trains, and a proposal does not try the network.
    ("run FINISHED/search.yaml --runs FINISHED/runs", 0, {*HEAVY} - {"scipy"}),
    ('enqueue small --loss pnp --params {"alpha":2.0} --runs FINISHED/runs', 0, {"torch"}),
    ("report small --runs RUNS", 0, {"torch", *EXTRA}),
]
"""A command, its exit code, and what it may not load; those that may load more come later."""


def test_a_command_loads_only_what_it_uses(
    runs: Path, finished: tuple[Path, Path], search_file: SearchFile, tmp_path: Path
) -> None:
    (finished[0] / "small" / "report.html").touch()  # otherwise it would be drawn
    (tmp_path / "wrong.yaml").write_text("name: wrong\ndataset: {name: glyphs}\nlosses: [mpaa]\n")
    places = {"RUNS": str(runs), "WRONG": str(tmp_path / "wrong.yaml"), "FINISHED": str(finished[1].parent)}
    paths = re.compile("|".join(places))
    commands = [paths.sub(lambda word: places[word[0]], words).split() for words, _, _ in ROWS]
    driving = (
        "from pathlib import Path; from search.driver.make_plan import read_plan\n"
        f"read_plan({search_file()!r}, Path({str(tmp_path)!r})).images.make()\n"
        "import search.driver.pipeline, search.engines.ray_tune, search.engines.local\n"
        "print(json.dumps([name for name in ('torch', 'torchvision', 'faiss', 'mlflow') if name in sys.modules]))"
    )
    program = [sys.executable, "-c", PROGRAM + driving, json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    *found, driven = map(json.loads, done.stdout.splitlines())
    assert driven == [], "planning and driving a search load no torch"
    for (words, code, without), (ended, modules, said) in zip(ROWS, found, strict=True):
        assert (words, ended, {*modules} & without) == (words, code, set()), said


def test_a_finished_search_that_is_extended_tries_its_network(finished: tuple[Path, Path]) -> None:
    """Mistakes are still reported at once, before anything is trained."""
    runs, file = finished
    changed = ("--set", "search.trials=20", "--set", "training.image_size=1")
    assert "training.image_size" in refusal("run", file, "--runs", runs, *changed)


def test_the_library_loads_nothing_before_it_is_used() -> None:
    program = "import json, sys, holdout; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in json.loads(done.stdout)} & {*HEAVY, *STUDIES, "numpy", "pydantic"}
