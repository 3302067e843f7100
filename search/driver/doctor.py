"""Checks of this machine, and whether it is enough for a search."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import accumulate
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory

import torch
from optuna.trial import create_trial

from search.config.search_config import SearchConfig
from search.config.sections import ResourcesSection
from search.driver.inputs import REPAIR
from search.driver.make_plan import make_plan
from search.driver.notices import without_model
from search.driver.part_checks import Notice, slow_precision
from search.engines import NoEngine
from search.engines.base import make_engine
from search.engines.capacity import Node, at_once, fitting, roomier, too_tight, trials_on, wanted
from search.packages import INSTALL, missing_packages
from search.records.disk import check_space
from search.records.plan import Plan, training_of
from search.records.work import Work, planned_work, seconds_left, slots_here
from search.stages import Stage
from search.study import Pruner
from search.tables import ENGINES, PRUNERS, engine_name, ray_address
from search.trials import changed
from spaces.contract import CheckResult
from trainables.common.errors import InvalidInput, counted, listed
from trainables.common.process import allotted_cpus, allotted_memory, driver_problem
from trainables.common.storage import DiskFull
from trainables.data.images import inspect
from trainables.metrics.gallery import faiss_wheels, import_faiss
from trainables.training.spec import DeviceMemory, TrialSpec
from trainables.training.train import Cost, ImageCounts, measured_costs

# The expected duration of a search, from the measured cost of its trainings.

ENOUGH_TRIALS = 200
"""The number of simulated trials that estimates the mean steps of a trial within a few per cent."""

START_S = 20
"""Time from the command to the first epoch with Ray, on two cores (``python -m benchmarks overhead``)."""


def measured_trainings(plan: Plan, directory: str) -> dict[str, TrialSpec]:
    """Return a short training of each loss's default, to be measured in ``directory``; it decodes images if it must."""
    train, images, training = plan.split.train, plan.images, plan.config.training
    if images.find() is None:
        wanted = 2 * ceil(training.batch_size / training.images_per_class) * plan.split.merge
        counts = accumulate(len(plan.classes[name]) for name in train)
        enough = next((number for number, count in enumerate(counts, 1) if count >= 2 * training.batch_size), wanted)
        train = train[: max(wanted, enough)]
        images = replace(images, class_names=train, cache=f"{directory}/images")
    specs = {}
    trial = create_trial(value=0.0, user_attrs={"seed": 0})
    for loss in plan.config.loss_names:
        default = changed(trial, params=dict(plan.spaces[loss].default))  # which may be outside of the space's ranges
        whole = replace(training_of(plan, loss, Stage.SEARCH, default), folds=(), gallery_seed=None, label_noise=0.0)
        specs[loss] = replace(
            whole, images=images, train_classes=train, validation_classes=(), directory=f"{directory}/{loss}"
        )
    return specs


def measured_costs_of(plan: Plan) -> dict[str, Cost]:
    """Measure the cost of each loss's default on this machine, in a temporary process, whose error is raised."""
    cpus, gpus = plan.config.resources.cpus_per_trial, plan.config.resources.gpus_per_trial
    with TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        trainings = measured_trainings(plan, folder)
        specs, threads = list(trainings.values()), max(1, int(cpus))
        found = process.submit(measured_costs, specs, images_of(plan), threads=threads, gpu=gpus > 0)
        return dict(zip(trainings, found.result(), strict=True))


def images_of(plan: Plan) -> ImageCounts:
    """Return the numbers of images of one training; for a cross-validation, those of the first fold."""
    classes, (learned, validating) = plan.classes, plan.split.divisions[0]
    train = tuple(len(classes[name]) for name in learned)
    return ImageCounts(
        train=train,
        validation=tuple(len(classes[name]) for name in validating),
        gallery=sum((images + 1) // 2 for images in train) if plan.config.metrics.gallery == "training_half" else 0,
    )


def expected_works(plan: Plan) -> list[Work]:
    """Return the trials of all stages with the epochs that each is expected to train."""
    pruner, works = PRUNERS[plan.config.search.pruner](steps=plan.steps), []
    for work in planned_work(plan, plan.config.stages):
        if work.stage is Stage.SEARCH:
            epochs_each = work.epochs_each * (expected_steps(pruner, work.budget.most) / plan.steps)
            work = replace(work, epochs_each=epochs_each)
        works.append(work)
    return works


def expected_steps(pruner: Pruner, trials: int) -> float:
    """Estimate the mean steps of a study's trials, if their values are random and constant over the steps."""
    draw = Random(0)
    steps: list[int] = []
    for _ in range(max(1, ENOUGH_TRIALS // max(1, trials))):
        comparison = pruner.rule("expected")
        for number in range(trials):
            value = draw.random()
            compared = (step for step in range(1, pruner.steps) if comparison.reason(number, step, value))
            steps.append(next(compared, pruner.steps))
    return fmean(steps) if steps else pruner.steps


def expected_seconds(plan: Plan, works: Sequence[Work], costs: Mapping[str, Cost], concurrent: int) -> float:
    """Return the time from the command to the end of the last training, without the scoring of the test."""
    pace = {(plan.config.name, loss): [cost.epoch] for loss, cost in costs.items()}
    trained = seconds_left(works, pace, concurrent)
    return START_S + (trained or 0.0)


# The checks, each with what was found and the fix.

INSPECT_S = 60
PROCESS_BYTES = 700_000_000
"""Memory of a worker before its first batch: Python, torch, Ray."""


def _python() -> Iterator[CheckResult]:
    yield CheckResult("python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def _torch() -> Iterator[CheckResult]:
    devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    found = ", ".join(f"{device.name} with {_gigabytes(device.total_memory)}" for device in devices) or "no GPU"
    if problem := driver_problem():
        fix = "Install a newer driver, or a PyTorch that is built for an older CUDA."
        yield CheckResult("torch", "failed", f"{torch.__version__} for CUDA {torch.version.cuda}, {problem}", fix)
        return
    yield CheckResult("torch", "ok", f"{torch.__version__}, {found}")


def _faiss() -> Iterator[CheckResult]:
    faiss, problem = import_faiss()
    if faiss is None:
        fix = "Run `make setup`; without it torch searches neighbours, on a CPU more slowly."
        yield CheckResult("faiss", "warning", f"cannot be imported: {problem}", fix)
        return
    if len(wheels := faiss_wheels()) > 1:
        fix = f"Run `pip uninstall --yes {' '.join(wheels)} && pip install {wheels[0]}`."
        yield CheckResult("faiss", "warning", f"{' and '.join(wheels)} share a folder; removing one breaks both", fix)
        return
    there = torch.cuda.device_count()
    on_gpus = f"; on {'the GPU' if there == 1 else f'{there} GPUs'} torch searches" if there else ""
    found = f"{faiss.__version__} searches on a CPU, with as many threads as a trial has CPUs{on_gpus}"
    yield CheckResult("faiss", "ok", found)


def _extra() -> Iterator[CheckResult]:
    if missing := missing_packages():
        found = f"not installed: {listed(missing)}; models can be used, and searches compared, but not run"
        yield CheckResult("extra", "warning", found, f"Run `{INSTALL}`.")


MACHINE_CHECKS = (_python, _torch, _faiss, _extra)


def _data(plan: Plan) -> Iterator[CheckResult]:
    split = plan.split
    found = f"{len(split.train)} classes train, {len(split.validation)} validate, {split.test_classes} test"
    yield CheckResult("data", "ok", f"{plan.config.dataset.name}: {found}")
    for check, told in (("choice", plan.resolution), ("vault", plan.vault_sentence)):
        if told:
            yield CheckResult(check, "ok", told.rstrip("."))


def _images(plan: Plan) -> Iterator[CheckResult]:
    """Check image files without decoding them, which would take too long here."""
    source, classes = plan.config.dataset.source, plan.classes
    replace_them = f"Replace them; a search does not start with {source.noun} that cannot be read."
    parts = ("training", plan.images.class_names, replace_them), ("test", plan.split.test, REPAIR)
    for part, names, fix in parts:
        keys = [key for name in names for key in classes[name]]
        if not keys:  # a vault has them
            continue
        seen = inspect(source.damage, keys, seconds=INSPECT_S)
        fine = f"none of {len(keys):,} looks damaged; their contents were not read"
        found = (seen.sentence(f"{source.noun} of {part} classes") or fine).rstrip(".")
        result = CheckResult(f"{part} {source.noun}", "ok", found)
        yield replace(result, state="warning", fix=fix) if seen.damaged else result


def _disk(plan: Plan) -> Iterator[CheckResult]:
    try:
        free = check_space([plan])
    except DiskFull as error:
        yield CheckResult("disk", "failed", "there is too little space", str(error))
        return
    yield CheckResult("disk", "ok", ", ".join(f"{_gigabytes(size)} free in {place}" for place, size in free.items()))


def _memory(plan: Plan, each: int = PROCESS_BYTES) -> Iterator[CheckResult]:
    """Check the memory for all trials at once, with ``each`` taking this many bytes."""
    slots, has = slots_here(plan.config), allotted_memory()
    need = slots * each
    found = f"{counted(slots, 'trial')} at once: at least {_gigabytes(need)} of {_gigabytes(has)}"
    fix = "Lower search.max_concurrent, or raise resources.cpus_per_trial."
    yield CheckResult("memory", "ok", found) if need < has else CheckResult("memory", "failed", found, fix)


def _precision(plan: Plan) -> Iterator[CheckResult]:
    if mistake := slow_precision(plan.config):
        yield CheckResult("precision", "warning", f"{mistake.key} {mistake.text}", mistake.advice)


def _sampling(plan: Plan) -> Iterator[CheckResult]:
    """Check that trials finish before the next ones are proposed."""
    slots, losses = slots_here(plan.config), plan.config.loss_names
    samplers = [sampler for loss in losses if (sampler := plan.budget(loss).sampler)]
    blind = any(sampler.trials_before_model(-(-slots // len(losses))) >= sampler.trials for sampler in samplers)
    texts = (without_model(plan.config.search.sampler, sampler, slots, len(losses)) for sampler in samplers)
    for text in filter(None, dict.fromkeys(texts)):
        yield CheckResult("sampling", "warning" if blind else "ok", text.rstrip("."))


def _cost(plan: Plan) -> Iterator[CheckResult]:
    """Measure a few steps of each loss's default; estimate the time and memory of the search."""
    resources = plan.config.resources
    if plan.config.trainable is not None:
        found = "not measured: the first trial of your own training shows the time of an epoch"
        yield CheckResult("time", "ok", found)
        return
    here = {"CPU": float(allotted_cpus()), "GPU": float(torch.cuda.device_count())}
    if not trials_on(here, wanted(resources)):
        found = "not measured: a trial does not fit on this machine"
        yield CheckResult("time", "warning", found, "Run this on a machine that will train.")
        return
    try:
        costs = measured_costs_of(plan)
    except Exception as error:  # any error that would end the trials
        killed = isinstance(error, BrokenProcessPool)
        reason = "its process was killed" if killed else f"{type(error).__name__}: {error}"
        fix = "Trials would fail as well; if memory is short, lower training.batch_size."
        yield CheckResult("step", "failed", f"a training could not be measured ({reason})", fix)
        return
    steps = ", ".join(f"{loss} {cost.step:.2g} s a step" for loss, cost in costs.items())
    most = max(costs.values(), key=lambda cost: cost.memory)
    epoch = f"an epoch has {most.steps} and {most.validation:.2g} s of validation"
    yield CheckResult("step", "ok", f"{steps}; {epoch}; {_gigabytes(most.memory)} at the peak")
    if most.device_memory is None:
        yield from (found for found in _memory(plan, most.memory) if found.state == "failed")
    else:
        yield _share(resources, DeviceMemory(peak=most.memory, total=most.device_memory), here)
    try:
        slots = _slots(plan.config, here)
    except NoEngine:
        return  # the check of Ray reports it
    except InvalidInput as error:
        found = "not even one trial fits on the cluster"
        yield CheckResult("cluster", "failed", found, " ".join(error.sentences))
        return
    took = expected_seconds(plan, expected_works(plan), costs, slots)
    trials = counted(slots, "trial")
    found = f"about {_minutes(took)} with {trials} at once if the cores are idle, and then the scoring of the test"
    yield CheckResult("time", "ok", found)


def _slots(config: SearchConfig, here: Node) -> int:
    """Return the number of trials at once on the Ray cluster if there is one, else on this machine, with ``here``."""
    resources, most = config.resources, config.search.max_concurrent
    is_ray = engine_name(resources.engine, resources.gpus_per_trial) == "ray"
    if is_ray and not ray_address():
        return at_once(resources, most, [here])
    engine = make_engine(resources, most)
    with engine.session():
        return engine.slots()


def _share(resources: ResourcesSection, memory: DeviceMemory, here: Node) -> CheckResult:
    """Check that as many trials fit on a GPU as ``gpus_per_trial`` allows, and propose a share if more would fit."""
    need, fit = fitting(memory)
    takes = f"a trial takes {_gigabytes(need)} of {_gigabytes(memory['total'])}, so {fit} fit on a GPU"
    found = "; ".join(filter(None, (takes, roomier(resources, memory, here))))
    fix = too_tight(resources.gpus_per_trial, memory)
    return CheckResult("gpu share", "failed" if fix else "ok", found, fix or "")


def _minutes(seconds: float) -> str:
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds / 60:.1f} min"


SEARCH_CHECKS = (_data, _images, _disk, _memory, _precision, _sampling, _cost)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def examine(
    config: SearchConfig | None,
    runs: Path,
    machine_checks: Sequence[Callable[[], Iterator[CheckResult]]] = MACHINE_CHECKS,
    search_checks: Sequence[Callable[[Plan], Iterator[CheckResult]]] = SEARCH_CHECKS,
    *,
    fits_batch: bool = False,
) -> Iterator[CheckResult]:
    """Yield every check of this machine, and those of a search and of its engine, or without one of all engines."""
    resources = config.resources if config else None
    engines = [engine_name(resources.engine, resources.gpus_per_trial)] if resources else list(ENGINES)
    for check in (*machine_checks, *(check for name in engines for check in ENGINES[name].checks)):
        yield from check()
    if config is None:
        return
    try:
        plan = make_plan(config, runs, fits_batch=fits_batch)
    except InvalidInput as error:
        yield from (CheckResult("search", "failed", sentence) for sentence in error.sentences)
        return
    yield CheckResult("tracking", "ok", config.tracking.uri or "a file in the runs folder")
    for notice in (each for each in plan.notices if isinstance(each, Notice)):
        name, text = notice.key.rpartition(".")[2], notice.text.removeprefix(": ")
        yield CheckResult(name, "warning" if notice.fix else "ok", text, notice.advice)
    for of_search in search_checks:
        yield from of_search(plan)
