"""Ray Tune: runs the trials of a queue on reused actors."""

import logging
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray._private import state
from ray.air.execution._internal import RayActorManager
from ray.exceptions import ActorUnavailableError, OutOfMemoryError, RayActorError, RayTaskError
from ray.tune.execution import tune_controller
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from search.config.sections import ResourcesSection
from search.engines.capacity import Node, at_once, growth
from search.engines.waiting import RAY_DIED, Placement, Share, Silences, drivers_on_cluster
from search.study import RunningTrial, TrialQueue
from trainables.mistakes import Failure, Mistakes
from trainables.spec import TrialSpec
from trainables.trial import TrainingTrial

# What Tune makes of an actor that Ray ended because its machine ran out of memory.


class ActorOutOfMemory(RayActorError):
    """Ray ended an actor before its machine ran out of memory."""


class ActorManager(RayActorManager):
    """Tune's, to which an actor that was ended so is one that died.

    To Tune's own it is "an unexpected exception", which ends the whole search.
    """

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = ActorOutOfMemory(error_msg=str(exception))
        super()._actor_task_failed(tracked_actor_task, exception)


def use_in_tune() -> None:
    """Have Tune use it; Tune has no setting for that."""
    tune_controller.RayActorManager = ActorManager


# The trials that one worker trains together: filled from the queue, and told what became of them.


class Stack:
    """Up to ``size`` trials of ``queue`` on one worker; empty where the worker waits for work.

    The worker knows its trials by their directories, in which nothing else is trained.
    """

    def __init__(self, queue: TrialQueue, size: int) -> None:
        self._queue = queue
        self._size = size
        self._members: dict[str, RunningTrial] = {}

    @property
    def members(self) -> tuple[RunningTrial, ...]:
        """The trials."""
        return tuple(self._members.values())

    def fill(self, *, at_once: int, workers: int) -> tuple[TrialSpec, ...]:
        """Take what is to be trained next, as far as there is room; at most ``at_once`` run on all ``workers``."""
        taken: list[TrialSpec] = []
        while len(self._members) < self._size:
            members = self.members
            running = (
                self._queue.next_beside(members, at_once=at_once, workers=workers)
                if members
                else self._queue.next_trial()
            )
            if running is None:
                break
            self._members[running.spec.directory] = running
            taken.append(running.spec)
        return tuple(taken)

    def on_result(self, news: Sequence[dict[str, Any]]) -> tuple[str, ...]:
        """Carry what a step told of each trial into the studies; the directories of those that do not go on."""
        told = {entry["directory"]: entry for entry in news}
        together = len(self._members)
        ended: list[str] = []
        for directory, running in tuple(self._members.items()):
            if directory in told:
                goes_on = self._queue.on_trial_result(running, told[directory], together)
            else:  # the call that brings it did not arrive: its spec cannot be read there
                self._queue.on_trial_error(running, "its worker could not take it", own=True, together=together)
                goes_on = False
            if not goes_on:
                del self._members[directory]
                ended.append(directory)
        return tuple(ended)

    def on_error(self, reason: str, *, own: bool) -> None:
        """The worker is gone, or its node (``own`` is False)."""
        members, self._members = self.members, {}
        for running in members:
            self._queue.on_trial_error(running, reason, own=own, together=len(members))


# Ray Tune, wrapped once: it runs the queue's trials side by side on actors that it uses again and again.
#
# Tune's own searchers and schedulers are not used: they keep a state of their own (``OptunaSearch`` calls a trial
# COMPLETE that a scheduler stopped). Here the study decides and Tune carries out.

logger = logging.getLogger(__name__)

LOOK_S = 10.0
SAY_S = 600.0
READY_S = 86_400.0
"""For a node to decode the images, of which nothing is known before."""

BOOTSTRAP = Path.home() / "ray_bootstrap_config.yaml"
"""What ``ray up`` leaves on the head of its cluster."""


class _Assignments:
    """Which of Tune's trials trains which of ours and on which node, and the first error of our own, which ends all.

    A trial of Tune is a worker with a stack of ours, up to ``size`` of them, which is empty while it waits for work.
    ``ended`` says why we ended a worker.
    """

    def __init__(
        self, queue: TrialQueue, share: Share, silences: Silences, placement: Placement, *, size: int, at_once: int
    ) -> None:
        self.queue = queue
        self.size = size
        self._at_once = at_once
        self.share = share
        self.silences = silences
        self.placement = placement
        self.ended: dict[str, str] = {}
        self.stacks: dict[str, Stack] = {}
        self.nodes: dict[str, str] = {}
        self.error: Exception | None = None

    def fill(self, stack: Stack) -> tuple[TrialSpec, ...]:
        """Give ``stack`` what its worker is to train next, as one of this driver's share of the workers."""
        workers = self.share.workers
        return stack.fill(at_once=min(self._at_once, workers * self.size), workers=workers)

    def stays(self, trial_id: str) -> bool:
        """Whether a worker is in this driver's share, which shrinks when another driver comes."""
        return trial_id in list(self.stacks)[: self.share.workers]

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes snapshots of its parts, which nothing reads: the studies are the state


class _StudySearcher(Searcher):
    def __init__(self, assignments: _Assignments) -> None:
        super().__init__(metric="training_iteration", mode="max")
        self._assignments = assignments

    def suggest(self, trial_id: str) -> Any:
        assignments = self._assignments
        if assignments.error:
            return Searcher.FINISHED
        if len(assignments.stacks) >= assignments.share.workers:
            return None
        stack = Stack(assignments.queue, assignments.size)
        try:
            specs = assignments.fill(stack)
        except Exception as error:
            assignments.error = error
            return Searcher.FINISHED
        if assignments.queue.done:
            return Searcher.FINISHED
        # Tune ends an actor for which it has no trial, and then starts the next stage on the ones that are left.
        # A trial that waits keeps its actor, with everything imported, until there is work again.
        assignments.stacks[trial_id] = stack
        return {"specs": specs}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Nothing: the scheduler has reported to the study."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the study is the state."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the study is the state."""


class _StudyScheduler(FIFOScheduler):
    def __init__(self, assignments: _Assignments) -> None:
        super().__init__()
        self._assignments = assignments

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        """No preference: Tune starts what waits in its order, and need not go through all trials at each event.

        It asks at each of its steps, which come ten times a second even if nobody says anything: so here is looked.
        """
        if self._assignments.silences.is_due:
            self._look(tune_controller)

    def _watch(self, trial_id: str) -> None:
        members = self._assignments.stacks[trial_id].members
        self._assignments.silences.watch(trial_id, members[0].study.name if members else None)

    def _look(self, tune_controller: Any) -> None:
        """End the workers that have said nothing for too long, and say what waits for a machine."""
        assignments = self._assignments
        actors = tune_controller._actor_manager._live_actors_to_ray_actors_resources
        placed, waiting = {}, 0
        for trial, tracked in tune_controller._trial_to_actor.items():
            if trial.trial_id not in assignments.stacks:
                continue
            if tracked not in actors:
                waiting += 1
                continue
            placed[trial.trial_id], _ = actors[tracked]
            self._watch(trial.trial_id)
        for trial_id, silence in assignments.silences.too_long().items():
            if trial_id in placed and trial_id not in assignments.ended:
                assignments.ended[trial_id] = str(silence)
                if not assignments.stacks[trial_id].members:
                    logger.warning("While it waited for a trial, %s.", silence)
                ray.kill(placed[trial_id])  # also one that is stopped: its node ends the process seconds later
        try:
            assignments.placement.look(placed=len(placed), waiting=waiting)
        except Exception as error:
            assignments.error = assignments.error or error
            tune_controller.request_stop_experiment()  # what waits for a machine reports nothing that could end it

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        assignments = self._assignments
        share = assignments.share
        records = [record for news in result["news"] for record in news.get("records", ())]
        self._watch(trial.trial_id)  # its first epoch may have come before anybody looked
        assignments.silences.heard(trial.trial_id, [record["end"] - record["start"] for record in records])
        if share.is_shared and len(assignments.stacks) >= share.workers:
            tune_controller._cleanup_cached_actors(force_all=True)  # it keeps one, whose slot is another search's
        try:
            goes_on = not assignments.error and self._goes_on(trial, result["news"])
        except Exception as error:
            assignments.error = error
            goes_on = False
        if not goes_on:
            self._forget(trial.trial_id)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def _goes_on(self, trial: Any, news: Sequence[dict[str, Any]]) -> bool:
        assignments = self._assignments
        stack = assignments.stacks[trial.trial_id]
        if not stack.members:
            return assignments.queue.has_to_wait and len(assignments.stacks) <= assignments.share.workers
        ended = stack.on_result(news)
        if not stack.members:
            return False
        begun = assignments.fill(stack) if assignments.stays(trial.trial_id) else ()
        if begun:  # the next step has their models and weights in it, as a worker's first one has
            assignments.silences.forget(trial.trial_id)
            self._watch(trial.trial_id)
        worker = trial.temporary_state.ray_actor  # which carries calls out in their order: these, then Tune's next step
        if ended:
            worker.assign.remote(ended, ())
        for spec in begun:  # one by one: what cannot be read there keeps no other from it
            worker.assign.remote((), (spec,))
        return True

    def _forget(self, trial_id: str) -> tuple[Stack | None, str | None]:
        """Take a trial that ended out of the books; what it trained, and where."""
        assignments = self._assignments
        assignments.silences.forget(trial_id)
        return assignments.stacks.pop(trial_id, None), assignments.nodes.pop(trial_id, None)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Only an actor that died, or could not be made, ends here: a training's failures are results."""
        assignments = self._assignments
        stack, node = self._forget(trial.trial_id)
        silent = assignments.ended.pop(trial.trial_id, None)
        if assignments.error or stack is None:
            return
        error = _error_of(trial)
        reason = silent or (type(error).__name__ if error else "its process ended")
        try:
            own = silent is not None or _is_own(error, node)
            stack.on_error(reason, own=own)
        except Exception as error:
            assignments.error = error


class _Whereabouts(tune.Callback):
    """Notes on which node each of Tune's trials runs, once its actor is ready for it."""

    def __init__(self, assignments: _Assignments) -> None:
        self._assignments = assignments
        self._nodes: dict[str, str] = {}  # of an actor, which stays where it is

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        actor = trial.temporary_state.ray_actor._actor_id.hex()
        if actor not in self._nodes:
            self._nodes[actor] = state.actors(actor)["Address"]["NodeID"]
        self._assignments.nodes[trial.trial_id] = self._nodes[actor]


def _error_of(trial: Any) -> Exception | None:
    """What ended Tune's trial.

    Tune's own ``get_error`` gives a text, and looks for it where Tune would copy its files in the end.
    """
    if trial.pickled_error_file is None:
        return None
    error: Exception = ray.cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    return error


def _is_own(error: Exception | None, node: str | None) -> bool:
    """Whether a training is to be held to be the cause of ``error``, which ended it on ``node``.

    It is where its machine says that its process died. It is not where its machine is gone: for seconds Ray does not
    know that (``ActorUnavailableError``) and lists the machine among those that live. Nor is it where it never ran
    (None). That the training cannot even be made is its own.
    """
    if getattr(error, "actor_init_failed", False):
        return True
    if isinstance(error, ActorUnavailableError):
        return False
    return any(entry["NodeID"] == node and entry["Alive"] for entry in ray.nodes())


def _alive_nodes() -> list[Node]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _is_here() -> bool:
    """Whether this process's own node is alive to the cluster."""
    here = ray.get_runtime_context().get_node_id()
    return any(node["NodeID"] == here and node["Alive"] for node in ray.nodes())


def slots(resources: ResourcesSection, max_concurrent: int | None) -> int:
    """How many trials run at once on the cluster that Ray is connected to, when it has grown as far as it may.

    Raises:
        Mistakes: not even one trial fits.
    """
    return at_once(resources, max_concurrent, _alive_nodes(), growth(BOOTSTRAP))


def run_queue(queue: TrialQueue, *, resources: ResourcesSection, concurrent: int) -> None:
    """Train everything in the queue, at most ``concurrent`` trials at once."""
    workers = resources.workers(concurrent)
    assignments = _Assignments(
        queue,
        Share(workers, drivers_on_cluster),
        Silences(epochs=resources.silent_epochs, first_epoch_s=60 * resources.first_epoch_minutes),
        Placement(resources, _alive_nodes, growth(BOOTSTRAP), _is_here),
        size=resources.stack,
        at_once=concurrent,
    )
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the study says what fails, with its reason
    use_in_tune()
    trainable = tune.with_resources(TrainingTrial, {"cpu": resources.cpus_per_trial, "gpu": resources.gpus_per_trial})
    with tempfile.TemporaryDirectory(prefix="holdout-tune-") as scratch:
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=_StudySearcher(assignments),
                scheduler=_StudyScheduler(assignments),
                num_samples=-1,
                max_concurrent_trials=workers,
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


def map_on_workers(function: Any, arguments: Sequence[Any], *, resources: ResourcesSection) -> list[Any]:
    """``function`` of each argument, computed on the cluster's workers: with a trial's CPUs, and one GPU at most."""
    gpus = min(resources.gpus_per_trial, 1)
    task = ray.remote(num_cpus=resources.cpus_per_trial, num_gpus=gpus, max_retries=2)(function)
    patience_s = 60 * resources.first_epoch_minutes
    return _results([task.remote(argument) for argument in arguments], patience_s, "resources.first_epoch_minutes")


def on_other_nodes(function: Any, *arguments: Any) -> list[Any]:
    """``function`` of ``arguments``, computed once on every node of the cluster but this process's own."""
    here = ray.get_runtime_context().get_node_id()
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
    task = ray.remote(num_cpus=0, max_retries=2)(function)
    strategies = [NodeAffinitySchedulingStrategy(node_id=node, soft=True) for node in nodes]
    calls = [task.options(scheduling_strategy=strategy).remote(*arguments) for strategy in strategies]
    return _results(calls, READY_S, "a day, which decoding may take")


def _results(calls: Sequence[Any], patience_s: float, bound: str) -> list[Any]:
    """What ``calls`` return, in their order.

    Raises:
        Failure: for ``patience_s`` none of those that are left has returned, or Ray has died on this machine.
    """
    left, since, say_after = list(calls), time.monotonic(), SAY_S
    while left:
        done, left = ray.wait(left, timeout=LOOK_S)
        _raise_own(done)
        if done:
            since, say_after = time.monotonic(), SAY_S
            continue
        if not _is_here():
            raise Failure(RAY_DIED)
        waited = time.monotonic() - since
        if waited >= say_after:
            logger.warning("%d of %d workers have not answered for %.0f minutes.", len(left), len(calls), waited / 60)
            say_after += SAY_S
        if waited >= patience_s:
            raise Failure(
                f"{len(left)} of {len(calls)} workers did not answer within {patience_s / 60:g} minutes ({bound}). See "
                "whether their machines and what they read from (images, checkpoints) answer; the same command goes on."
            )
    results: list[Any] = ray.get(list(calls))
    return results


def _raise_own(done: Sequence[Any]) -> None:
    """Raise what the first of ``done`` that failed raised: it ends all."""
    try:
        ray.get(done)
    except RayTaskError as error:  # whose text is that of a traceback
        if isinstance(error.cause, Failure | Mistakes):
            raise error.cause from error
        raise
