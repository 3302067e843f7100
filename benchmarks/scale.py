"""Time of the driver for a proposal and a report, from 1 slot to 256 and from 100 trials to thousands.

The trainings are simulated, so only the driver's own work is timed: the queue, the journal, successive halving, the
random sampler. The same run measures plain Optuna with its own journal and with SQLite (``ask``, ``report``,
``should_prune``, ``tell``), and Ray Tune's ``OptunaSearch``, whose study is in memory and lost with its process. Every
row is a separate process. Run with ``python -m benchmarks scale``; ``QUICK=1`` omits the 5,000 trials.
"""

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.training.spec import Epochs

if TYPE_CHECKING:
    from search.records.writable import WritableRecords

EPOCHS = 8
SLOTS = (1, 16, 64, 256)
PEER_TRIALS, PEER_SLOTS = 60, (1, 16)
WINDOW = 100


@dataclass
class Times:
    """Milliseconds of each proposal and report, in order."""

    proposals: list[float] = field(default_factory=list)
    reports: list[float] = field(default_factory=list)

    def clock(self, kind: list[float], call: Callable[[], Any]) -> Any:
        """Call and time; a call that returns None does not count."""
        start = time.perf_counter()
        answer = call()
        if answer is not None:
            kind.append((time.perf_counter() - start) * 1e3)
        return answer

    def told(self) -> dict[str, Any]:
        """Return the medians of the first and the last calls."""
        per_trial = len(self.reports) / len(self.proposals)
        window = max(1, int(WINDOW * per_trial))
        return {
            "proposal": [statistics.median(self.proposals[:WINDOW]), statistics.median(self.proposals[-WINDOW:])],
            "report": [statistics.median(self.reports[:window]), statistics.median(self.reports[-window:])],
            "report_mean": statistics.fmean(self.reports[-10 * window :]),
        }


def curve(number: int) -> list[float]:
    """Return the values of a simulated trial."""
    draw = random.Random(number)
    end, speed = draw.random(), draw.uniform(0.2, 1.2)
    return [end * (1 - 2 ** (-epoch * speed)) for epoch in range(1, EPOCHS + 1)]


def record(number: int, epoch: int) -> dict[str, Any]:
    """Return an epoch's record as a worker reports it."""
    value = curve(number)[epoch - 1]
    names = ("map_at_r", "recall_at_1", "recall_at_2", "recall_at_4", "recall_at_8")
    now = time.time()
    return {
        "epoch": epoch, "loss": 1 - value, "metrics": dict.fromkeys(names, value), "start": now - 1, "end": now,
        "checkpoint": "attempt-1/best.pt",
    }  # fmt: skip


def resident_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def search_file(name: str, trials: int) -> dict[str, Any]:
    """Return a search file of one loss with five hyperparameters."""
    return {
        "name": name,
        "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4},
        "training": {"epochs": EPOCHS, "batch_size": 8, "images_per_class": 2},
        "losses": ["mpa"],
        "search": {"trials": trials, "sampler": "random", "pruner": "asha"},
        "stages": ["search"],
    }


def ours(runs: Path, slots: int, trials: int) -> dict[str, Any]:
    """Drive a whole search stage, then reopen it."""
    from rich.console import Console

    from search.config.search_config import parse_config
    from search.driver.listeners import Progress
    from search.driver.make_plan import make_plan
    from search.driver.stages import search_stage
    from search.records.writable import open_search
    from search.stages import Stage
    from search.study.trial_queue import QueuedStage, RunningTrial, TrialQueue

    def only(stage: QueuedStage) -> Iterator[QueuedStage]:
        yield stage

    plan = make_plan(parse_config(search_file(f"scale-{slots}-{trials}", trials)), runs)
    times = Times()
    with closing(open_search(plan)) as search:
        progress = Progress(Console(quiet=True), [search], [Stage.SEARCH], concurrent=slots, started=time.time())
        queue = TrialQueue(only(search_stage(search)), listeners=[progress])
        running: list[tuple[RunningTrial, int]] = []
        cpu = time.process_time()
        memory = None
        while not queue.done:
            while len(running) < slots and (job := times.clock(times.proposals, queue.next_trial)):
                running.append((job, 0))
            memory = memory or resident_mb()
            if not running:
                break
            job, epoch = running.pop(0)
            news = Epochs([record(job.number, epoch + 1)], finished=epoch + 1 == EPOCHS)
            if times.clock(times.reports, lambda job=job, news=news: queue.on_trial_result(job, news)):
                running.append((job, epoch + 1))
        result = {**times.told(), "memory": resident_mb() - (memory or 0), "cpu": time.process_time() - cpu}
    start = time.perf_counter()
    with closing(open_search(plan)) as search:
        search_stage(search)
        result["open"] = time.perf_counter() - start
        if slots == SLOTS[-1] and trials > 1000:
            result["mlflow"] = mlflow(search)
    return result


def mlflow(search: "WritableRecords") -> dict[str, float]:
    """Return the seconds to write all trials to an empty MLflow, to repeat that, and to read one page of runs."""
    from search.driver.synchronise import make_projection
    from search.stages import Stage
    from search.tracking.client import open_client

    study = search.study("mpa", Stage.SEARCH)
    seconds = {}
    for name in ("first", "again"):
        projection = make_projection(search.plan)
        start = time.perf_counter()
        for trial in study.trials():
            projection.project(study.name, trial)
        seconds[name] = time.perf_counter() - start
    client = open_client(search.folder.tracking)
    (experiment,) = client.search_experiments(filter_string=f"name = '{search.name}'")
    start = time.perf_counter()
    client.search_runs([experiment.experiment_id], max_results=100, order_by=["metrics.`objective/value` DESC"])
    seconds["page"] = time.perf_counter() - start
    return seconds


def optuna_itself(path: Path, slots: int, trials: int) -> dict[str, Any]:
    """Run plain Optuna with the same proposals, epochs and pruning, in a journal or a database."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    is_database = path.suffix == ".db"
    study = optuna.create_study(
        storage=f"sqlite:///{path}" if is_database else JournalStorage(JournalFileBackend(str(path))),
        direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=2),
    )  # fmt: skip
    times = Times()

    def propose() -> optuna.Trial:
        trial = study.ask()
        for name in "abcde":
            trial.suggest_float(name, 0, 1)
        return trial

    def report(trial: optuna.Trial, epoch: int) -> bool:
        trial.set_user_attr(f"epoch:{epoch}", record(trial.number, epoch))
        trial.report(curve(trial.number)[epoch - 1], epoch)
        return not trial.should_prune()

    running: list[tuple[optuna.Trial, int]] = []
    while len(times.proposals) < trials or running:
        while len(running) < slots and len(times.proposals) < trials:
            running.append((times.clock(times.proposals, propose), 0))
        trial, epoch = running.pop(0)
        goes_on = times.clock(times.reports, lambda trial=trial, epoch=epoch: report(trial, epoch + 1))
        if epoch + 1 == EPOCHS:
            study.tell(trial, curve(trial.number)[-1])
        elif goes_on:
            running.append((trial, epoch + 1))
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return times.told()


def optuna_search(slots: int, trials: int) -> dict[str, Any]:
    """Run Ray Tune's searcher alone, with its study in memory and no pruner."""
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {name: optuna.distributions.FloatDistribution(0, 1) for name in "abcde"}
    searcher = OptunaSearch(space=space, metric="value", mode="max", sampler=optuna.samplers.RandomSampler(seed=0))
    times = Times()

    def report(number: int, result: dict[str, Any]) -> bool:
        searcher.on_trial_result(str(number), result)
        return True

    running: list[tuple[int, int]] = []
    started = 0
    while started < trials or running:
        while len(running) < slots and started < trials:
            times.clock(times.proposals, lambda name=str(started): searcher.suggest(name))
            running.append((started, 0))
            started += 1
        number, epoch = running.pop(0)
        result = {"value": curve(number)[epoch], "training_iteration": epoch + 1, "done": epoch + 1 == EPOCHS}
        times.clock(times.reports, lambda number=number, result=result: report(number, result))
        if result["done"]:
            searcher.on_trial_complete(str(number), result)
        else:
            running.append((number, epoch + 1))
    return times.told()


def in_process(what: str, *arguments: object) -> dict[str, Any]:
    """Compute a row in a separate process."""
    command = [sys.executable, "-m", "benchmarks.scale", what, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def rows(scratch: Path) -> Iterator[tuple[str, str, int, int, dict[str, Any]]]:
    """Yield every row: tool, storage, slots, trials and times."""
    large = () if os.environ.get("QUICK") else (5000,)
    for trials in (1000, *large):
        for slots in SLOTS:
            yield "Holdout", "journal", slots, trials, in_process("ours", scratch / "runs", slots, trials)
    for slots in PEER_SLOTS:
        for kind, file in (("journal", f"optuna-{slots}.journal"), ("SQLite", f"optuna-{slots}.db")):
            yield "Optuna", kind, slots, PEER_TRIALS, in_process("optuna", scratch / file, slots, PEER_TRIALS)
    yield "OptunaSearch", "memory", SLOTS[-1], 1000, in_process("ray", SLOTS[-1], 1000)


def main() -> None:
    """Print the table row by row."""
    from rich.console import Console

    console = Console(width=130, highlight=False)
    console.print(
        "Milliseconds, medians of the first hundred trials and of the last; memory and opening after the last."
    )
    head = ("", "storage", "slots", "trials", "proposal", "report", "mean", "MB more", "opened, s", "CPU, s")
    layout = "{:13} {:11} {:>5} {:>6} {:>17} {:>15} {:>6} {:>8} {:>9} {:>7}"
    console.print(layout.format(*head))
    with tempfile.TemporaryDirectory() as scratch:
        for who, kind, slots, trials, result in rows(Path(scratch)):
            pairs = ("{:.2f} · {:.2f}".format(*result[key]) for key in ("proposal", "report"))
            rest = (f"{result[key]:.1f}" if key in result else "" for key in ("memory", "open", "cpu"))
            console.print(layout.format(who, kind, slots, trials, *pairs, f"{result['report_mean']:.2f}", *rest))
            if seconds := result.get("mlflow"):
                told = "{first:.0f} s into an empty MLflow, {again:.1f} s again, {page:.2f} s for its best 100 runs"
                console.print(f"{'':14}these {trials:,} trials: {told.format(**seconds)}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        kind, *given = sys.argv[1:]
        if kind == "ours":
            outcome = ours(Path(given[0]), int(given[1]), int(given[2]))
        elif kind == "optuna":
            outcome = optuna_itself(Path(given[0]), int(given[1]), int(given[2]))
        else:
            outcome = optuna_search(int(given[0]), int(given[1]))
        print(json.dumps(outcome))
