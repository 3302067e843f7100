"""The contract of every engine of the table: equal numbers, reported failures, calls in order."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import StatisticsError, mean
from typing import Any

import pytest
import torch
from optuna.trial import TrialState
from support.driving import Opened, begun, only
from support.refusals import sentences_of
from support.services import ray_nodes

from search.config.sections import ResourcesSection
from search.driver.stages import search_stage
from search.engines.base import Engine, make_engine
from search.engines.ray_engine import check_ray
from search.records.writable import WritableRecords
from search.stages import Stage
from search.study.trial_queue import QueuedStage, QueuedStudy, TrialQueue
from search.tables import ENGINES
from search.trials import epochs_of
from trainables.common.errors import InvalidInput, raise_if_any
from trainables.models import ModelConfig
from trainables.training.cross_validation import begin

LOSS = "proxy_anchor"


@pytest.fixture(scope="module", params=list(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine with an open session and one slot; Ray has two nodes."""
    with ExitStack() as stack:
        if request.param == "ray":
            nodes = stack.enter_context(ray_nodes(tmp_path_factory.mktemp("token") / "auth_token", bare=True))
            nodes.add(cpus=1)
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("RAY_ADDRESS", nodes.gcs_address)
            (found,) = check_ray()  # of `holdout doctor`
            assert found.state == "ok"
            assert f"on {nodes.gcs_address}: 2 nodes, 2 CPUs, 0 GPUs" in found.found
        engine = make_engine(ResourcesSection(engine=request.param), max_concurrent=1)
        stack.enter_context(engine.session())
        engine.load()
        yield engine


def made(search_made: Opened, folder: Path, trials: int) -> WritableRecords:
    search = search_made(folder / "runs", losses=[LOSS], search={"trials": trials, "sampler": "random"})
    search.plan.images.make()
    return search


def both(search_made: Opened, folder: Path) -> tuple[WritableRecords, WritableRecords]:
    """Return a search, and one for trainings that are broken."""
    return made(search_made, folder / "whole", 4), made(search_made, folder / "faulty", len(BROKEN))


BROKEN: tuple[dict[str, Any], ...] = (
    {"model": ModelConfig(weights="nowhere.pth")},
    {"loss": "support.own_parts:Exits"},
)
"""Changes of a trial's spec with which its training raises, or exits."""


def broken(stage: QueuedStage) -> QueuedStage:
    """The stage with a change in the spec of each trial."""

    def changed(study: QueuedStudy) -> QueuedStudy:
        return replace(study, spec=lambda trial: replace(study.spec(trial), **BROKEN[trial.number]))

    return replace(stage, studies=[changed(study) for study in stage.studies])


Outcome = tuple[list[Any], list[str]]
"""What the trials of a search reported, without times, and the causes of those whose training is broken."""


def outcome(engine: Engine, whole: WritableRecords, faulty: WritableRecords) -> Outcome:
    """Train a search, and one whose trainings are broken, in one run of the engine."""
    engine.run(TrialQueue(iter([search_stage(whole), broken(search_stage(faulty))])), 1)
    values = [
        (trial.number, trial.state, trial.params, [(entry["loss"], entry["metrics"]) for entry in epochs_of(trial)])
        for trial in whole.trials(LOSS, Stage.SEARCH)
    ]
    return values, [trial.user_attrs["failure"]["cause"] for trial in faulty.trials(LOSS, Stage.SEARCH)]


@pytest.fixture(scope="module")
def expected(search_made: Opened, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The outcome in this process."""
    engine = make_engine(ResourcesSection(engine="in_process"), max_concurrent=1)
    with engine.session():
        return outcome(engine, *both(search_made, tmp_path_factory.mktemp("expected")))


def test_a_search_gives_the_same_numbers_and_broken_trainings_are_code_errors(
    engine: Engine, expected: Outcome, search_made: Opened, tmp_path: Path
) -> None:
    """The search is resumed from a checkpoint; the expected one is not interrupted."""
    assert engine.slots() == 1
    whole, faulty = both(search_made, tmp_path)
    spec = begun(TrialQueue(only(search_stage(whole)))).spec
    training = begin(spec, torch.device("cpu"))  # of a driver that dies after an epoch
    training.run_epoch()
    training.wait_for_checkpoints()
    training.end()
    values, causes = outcome(engine, whole, faulty)
    assert "Resuming after epoch 1" in "".join(log.read_text() for log in Path(spec.directory, "logs").iterdir())
    assert values == expected[0]
    assert len(values) == 4
    assert TrialState.PRUNED in {state for _, state, _, _ in values}
    assert causes == ["CODE_ERROR", "CODE_ERROR"]


def test_calls_return_in_order_and_raise_what_their_function_raises(engine: Engine) -> None:
    assert engine.map(mean, [[9], [4], [1]]) == [9, 4, 1]
    assert sentences_of(lambda: engine.map(raise_if_any, [[], ["This is wrong.", "This too."]])) == (
        "This is wrong.",
        "This too.",
    )
    with pytest.raises(StatisticsError):
        engine.map(mean, [[]])


def test_preparation_takes_folders_and_images(engine: Engine, search_made: Opened, tmp_path: Path) -> None:
    search = made(search_made, tmp_path, 1)
    engine.prepare([search.plan.images], [search.plan.checkpoint_storage])


def test_an_exception_of_the_queue_ends_the_run(engine: Engine) -> None:
    """The last test: local workers end with the run."""

    def stages() -> Iterator[QueuedStage]:
        raise InvalidInput("This stage is refused.")
        yield

    with pytest.raises(InvalidInput, match="refused"):
        engine.run(TrialQueue(stages()), 1)
