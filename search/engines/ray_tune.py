"""Ray Tune as an executor: the trials of a queue on reused actors.

A trial of Tune is a worker with one of our trials, or without one while it waits for work. The study decides and Tune
carries out: its own searchers and schedulers keep a state of their own (``OptunaSearch`` records a trial as COMPLETE
that a scheduler stopped). ``tests/test_private_parts.py`` lists the private parts of Ray and Tune that are used: Tune
has no public way to end the worker of a trial, or to survive an actor that Ray ended for memory.
"""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError, RayTaskError
from ray.tune.execution import tune_controller as tune_execution
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from search.engines.base import Engine, Queue, Resources, Running
from search.engines.capacity import Node, at_once, growth, room
from search.engines.waiting import RAY_DIED, Patience, Placement, Silences, Workers
from trainables.common.errors import REFERRED, Failure, InvalidInput, refer
from trainables.training.spec import TrialSpec, seconds_of

logger = logging.getLogger(__name__)

POLL_S = 10.0
WAIT_S = 0.2
DAY_MINUTES = 24 * 60
"""For a node to decode the images, which may take long and reports nothing meanwhile."""

BOOTSTRAP = Path.home() / "ray_bootstrap_config.yaml"
"""The file that ``ray up`` writes on the head of its cluster."""


def slots(resources: Resources, max_concurrent: int | None) -> int:
    """Return the number of trials at once on the connected cluster, grown as far as it may; raise if none fits."""
    return at_once(resources, max_concurrent, _alive_nodes(), growth(BOOTSTRAP))


def run_queue(queue: Queue, engine: Engine, concurrent: int) -> None:
    """Train everything in the queue with the workers of ``engine``, at most ``concurrent`` trials at once."""
    resources, may_come = engine.resources, growth(BOOTSTRAP)
    assignments = _Assignments(
        queue=queue,
        worker=engine.worker,
        workers=Workers(concurrent, lambda: room(resources, _alive_nodes(), may_come), engine.on_workers),
        silences=Silences(limits=engine.limits),
        placement=Placement(resources, _alive_nodes, may_come, _is_here, engine.limits),
    )
    trainable = tune.with_resources(TrainingTrial, {"cpu": resources.cpus_per_trial, "gpu": resources.gpus_per_trial})
    with tempfile.TemporaryDirectory(prefix="holdout-tune-") as scratch, _adapted_tune(assignments):
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=_StudySearcher(assignments),
                scheduler=_StudyScheduler(assignments),
                num_samples=-1,
                max_concurrent_trials=concurrent,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: trial.trial_id,
                trial_name_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name="search",
                storage_path=str(Path(scratch)),
                verbose=0,
                callbacks=[_Whereabouts(assignments)],
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()
    if assignments.error:
        raise assignments.error


class TrainingTrial(tune.Trainable):
    """Lets an actor's worker (``config["worker"]``) train ``config["spec"]``.

    A step's result is ``{"news": [news]}``: a list, which Tune does not flatten. Without a spec (None) a step waits for
    :data:`WAIT_S`, which keeps the actor and its imports alive. Only an actor that dies reports nothing.
    """

    def setup(self, config: dict[str, Any]) -> None:
        """Make the worker and give it its training; whatever can fail is done in the first step."""
        del sys.argv[1:]  # Ray's; a user's code may parse the command line
        cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
        refer(config["secrets"].split())  # the Ray of a user started without
        self._worker = config["worker"](cpus=cpus, gpu=bool(ray.get_gpu_ids()))  # the process sees no other GPU
        self._assign(config["spec"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._worker.end()
        self._assign(new_config["spec"])
        return True

    def _assign(self, spec: TrialSpec | None) -> None:
        self._waits = spec is None
        if spec is not None:
            self._worker.assign(spec)

    def step(self) -> dict[str, Any]:
        if self._waits:
            time.sleep(WAIT_S)
            return {"news": []}
        return {"news": [self._worker.step()]}

    def cleanup(self) -> None:
        self._worker.end()


class ActorOutOfMemory(RayActorError):
    """The end of an actor by Ray's memory monitor."""


class ActorManager(RayActorManager):
    """Tune's actor manager, to which an actor that was ended for memory is an actor that died.

    Tune's own takes it for "an unexpected exception", which ends the whole search; there is no setting for it.
    """

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = ActorOutOfMemory(error_msg=str(exception))
        super()._actor_task_failed(tracked_actor_task, exception)


@contextmanager
def _adapted_tune(assignments: "_Assignments") -> Iterator[None]:
    """Let Tune use :class:`ActorManager` and log nothing; end its actors also after an interrupt."""
    log = logging.getLogger("ray.tune")
    level = log.level
    log.setLevel(logging.CRITICAL)  # the study reports failures, with their reasons
    tune_execution.RayActorManager = ActorManager
    try:
        yield
    finally:
        log.setLevel(level)
        tune_execution.RayActorManager = RayActorManager
        if assignments.actors:
            assignments.actors.cleanup()


@dataclass(kw_only=True, eq=False)
class _Assignments:
    """Our trial and the node of each of Tune's trials, by its id, shared by the parts that Tune calls.

    Attributes:
        trials: None while the worker waits for work.
        waiting: those with a trial that have no machine yet.
        ended: the reason for each worker that we ended.
        actors: Tune's manager of actors.
        error: the first exception of our own, which ends the run.
    """

    queue: Queue
    worker: type[Any]
    workers: Workers
    silences: Silences
    placement: Placement
    trials: dict[str, Running | None] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    ended: dict[str, str] = field(default_factory=dict)
    actors: Any = None
    error: Exception | None = None

    def forget(self, trial_id: str) -> tuple[Running | None, str | None]:
        """Remove one of Tune's trials that ended; return our trial and the node."""
        self.silences.forget(trial_id)
        self.waiting.discard(trial_id)
        return self.trials.pop(trial_id, None), self.nodes.pop(trial_id, None)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes snapshots of its parts, which are never read: the studies are the state


class _StudySearcher(Searcher):
    def __init__(self, assignments: _Assignments) -> None:
        super().__init__(metric="training_iteration", mode="max")
        self._assignments = assignments

    def suggest(self, trial_id: str) -> Any:
        """Return the training of a new worker."""
        assignments = self._assignments
        if assignments.error:
            return Searcher.FINISHED
        # What waits for a machine gets the next actor that is free: a new trial, or a wait for work, would take it.
        if assignments.waiting or len(assignments.trials) >= assignments.workers.number:
            return None
        try:
            running = assignments.queue.next_trial()
        except Exception as error:
            assignments.error = error
            return Searcher.FINISHED
        if assignments.queue.done:
            return Searcher.FINISHED
        # Tune ends an actor for which it has no trial, and then starts the next stage on the ones that are left.
        # A trial that waits keeps its actor, with everything imported, until there is work again.
        assignments.trials[trial_id] = running
        spec = running.spec if running else None
        return {"worker": assignments.worker, "spec": spec, "secrets": os.environ.get(REFERRED, "")}

    def on_trial_complete(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: the scheduler has reported to the study, which is the state."""

    save = restore = on_trial_complete


class _StudyScheduler(FIFOScheduler):
    def __init__(self, assignments: _Assignments) -> None:
        super().__init__()
        self._assignments = assignments

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """Return no preference: Tune starts waiting trials in order, without going through all of them at each event.

        Tune calls this at each of its steps, ten times a second even without events, so workers are watched here.
        """
        self._assignments.actors = tune_controller._actor_manager
        if self._assignments.silences.is_due:
            self._look(tune_controller)

    def _watch(self, trial_id: str) -> None:
        running = self._assignments.trials[trial_id]
        self._assignments.silences.watch(trial_id, running.study_name if running else None)

    def _look(self, tune_controller: Any) -> None:
        """End workers that were silent for too long, and report trials that wait for a machine."""
        assignments = self._assignments
        assignments.workers.look()
        placed, waiting = {}, set()
        live = assignments.actors._live_actors_to_ray_actors_resources
        for trial, tracked in tune_controller._trial_to_actor.items():
            if trial.trial_id not in assignments.trials:
                continue
            if tracked in live:
                placed[trial.trial_id] = live[tracked][0]
                self._watch(trial.trial_id)
            else:  # it has no machine yet
                waiting.add(trial.trial_id)
        assignments.waiting = {trial_id for trial_id in waiting if assignments.trials[trial_id]}
        for trial_id, silence in assignments.silences.too_long().items():
            if trial_id in placed and trial_id not in assignments.ended:
                assignments.ended[trial_id] = silence
                if assignments.trials[trial_id] is None:
                    logger.warning("While it waited for a trial, %s.", silence)
                ray.kill(placed[trial_id])  # also one that is stopped: its node ends the process seconds later
        try:
            assignments.placement.poll(placed=len(placed), waiting=len(waiting))
        except Exception as error:
            assignments.error = assignments.error or error
            tune_controller.request_stop_experiment()  # trials without a machine report nothing that could end it

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """Record the news of a worker's step; CONTINUE if it has trials to train or to wait for."""
        assignments = self._assignments
        self._watch(trial.trial_id)  # its first epoch may end before the first look
        assignments.silences.heard(trial.trial_id, seconds_of(result["news"]))
        running, goes_on = assignments.trials[trial.trial_id], False
        if not assignments.error:
            try:
                if running is None:
                    is_needed = assignments.waiting or len(assignments.trials) > assignments.workers.number
                    goes_on = assignments.queue.has_to_wait and not is_needed
                else:
                    goes_on = assignments.queue.on_trial_result(running, *result["news"])
            except Exception as error:
                assignments.error = error
        if not goes_on:
            assignments.forget(trial.trial_id)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Record that an actor died or could not be made; failures of trainings are results and do not arrive here."""
        assignments = self._assignments
        running, node = assignments.forget(trial.trial_id)
        silent = assignments.ended.pop(trial.trial_id, None)
        if assignments.error or running is None:
            return
        error = error_of(trial)
        reason = silent or (type(error).__name__ if error else "its process ended")
        try:
            own = silent is not None or _is_own(error, node)
            assignments.queue.on_trial_error(running, reason, own=own)
        except Exception as error:
            assignments.error = error


class _Whereabouts(tune.Callback):
    """Notes the node of each of Tune's trials once its actor is ready."""

    def __init__(self, assignments: _Assignments) -> None:
        self._assignments = assignments
        self._nodes: dict[Any, str] = {}  # of an actor, which stays where it is

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._assignments.waiting.discard(trial.trial_id)
        actor = trial.temporary_state.ray_actor
        if actor not in self._nodes:
            self._nodes[actor] = ray._private.state.actors(actor._actor_id.hex())["Address"]["NodeID"]
        self._assignments.nodes[trial.trial_id] = self._nodes[actor]


def error_of(trial: Trial) -> Exception | None:
    """Return the exception that ended a trial; the public ``get_error`` returns a text, from a file never copied."""
    if trial.pickled_error_file is None:
        return None
    error: Exception = ray.cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    return error


def _is_own(error: Exception | None, node: str | None) -> bool:
    """Return True if the end of an actor on ``node``, None if it never ran, counts against its trial.

    It does if the process died on a live machine, or if the training could not be made. It does not if the machine is
    gone, which Ray lists as alive for some seconds (``ActorUnavailableError``), or is being drained for a preemption.
    """
    if getattr(error, "actor_init_failed", False):
        return True
    if isinstance(error, ActorUnavailableError):
        return False
    alive = any(entry["NodeID"] == node and entry["Alive"] for entry in ray.nodes())
    return alive and node not in ray._private.state.state.get_draining_nodes()


def _alive_nodes() -> list[Node]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _is_here() -> bool:
    """Return True if the cluster takes this process's own node for alive."""
    here = ray.get_runtime_context().get_node_id()
    return any(node["NodeID"] == here and node["Alive"] for node in ray.nodes())


# Calls of a function on workers and nodes.


def map_on_workers(function: Any, arguments: Sequence[Any], *, resources: Resources) -> list[Any]:
    """Return ``function`` of each argument, computed by tasks with a trial's resources each."""
    as_a_trial = ray.remote(num_cpus=resources.cpus_per_trial, num_gpus=resources.gpus_per_trial, max_retries=2)
    placement = Placement(resources, _alive_nodes, growth(BOOTSTRAP), _is_here)
    first = as_a_trial(lambda: None).remote()
    while not ray.wait([first], timeout=POLL_S)[0]:  # other searches may use all machines for hours
        placement.poll(placed=0, waiting=len(arguments))
    task = as_a_trial(function)
    return _results([task.remote(argument) for argument in arguments], Patience(len(arguments)))


def on_other_nodes(function: Any, *arguments: Any) -> list[Any]:
    """Return ``function`` of ``arguments``, computed once on every node but this process's own."""
    here = ray.get_runtime_context().get_node_id()
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
    task = ray.remote(num_cpus=0, max_retries=2)(function)
    strategies = [NodeAffinitySchedulingStrategy(node_id=node, soft=True) for node in nodes]
    calls = [task.options(scheduling_strategy=strategy).remote(*arguments) for strategy in strategies]
    return _results(calls, Patience(len(calls), DAY_MINUTES))


def _results(calls: Sequence[Any], patience: Patience) -> list[Any]:
    """Return the results of ``calls`` in order; raise if none returns for too long, or Ray has died on this machine."""
    left = list(calls)
    try:
        while left:
            done, left = ray.wait(left, timeout=POLL_S)
            ray.get(done)  # raises the exception of a failed call
            if done:
                patience.answered()
            elif _is_here():
                patience.poll(len(left))
            else:
                raise Failure(RAY_DIED)
    except BaseException as error:
        for call in left:
            ray.cancel(call, force=True)  # Ray may outlive this search
        if isinstance(error, RayTaskError) and isinstance(error.cause, Failure | InvalidInput):
            raise error.cause from error  # without Ray's wrapper, whose text is a traceback
        raise
    results: list[Any] = ray.get(list(calls))
    return results
