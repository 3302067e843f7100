"""What this machine can do, and whether that is enough for a search: what was found, and how to mend it."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from search.cluster.capacity import Node, at_once, fitting, too_tight, trials_on, wanted
from search.cluster.mps import PIPES, mps_daemon
from search.cluster.session import NoRay, ray_session, token_path
from search.config.search_config import SearchConfig
from search.config.sections.resources import ResourcesSection
from search.plan.checks import make_plan
from search.plan.disk.needs import disk_needs, numbers_of, slots_here
from search.plan.disk.space import limit_warnings, spaces_of
from search.plan.plan import Plan
from search.plan.progress.estimate import expected_seconds, expected_works, measured_costs_of
from search.selection.seal import MEND
from search.study.samplers.chance import is_blind, left_to_chance
from trainables.data.look import look_at
from trainables.mistakes import Mistakes
from trainables.training.epoch_record import DeviceMemory

LOOK_S = 60
PROCESS_BYTES = 700_000_000
"""What an actor takes of the memory before its first batch: Python, torch, Ray."""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a check came to. ``mend`` says what to do where it is not ok."""

    check: str
    state: Literal["ok", "warning", "failed"]
    found: str
    mend: str = ""


def _python() -> Iterator[CheckResult]:
    yield CheckResult(check="python", state="ok", found=f"{sys.version.split()[0]} at {sys.executable}")


def _torch() -> Iterator[CheckResult]:
    devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    found = ", ".join(f"{device.name} with {_gigabytes(device.total_memory)}" for device in devices) or "no GPU"
    yield CheckResult(check="torch", state="ok", found=f"{torch.__version__}, {found}")


def _faiss() -> Iterator[CheckResult]:
    try:
        import faiss
    except ImportError as error:
        mend = "Run `make setup`; without it torch searches neighbours, on a CPU more slowly."
        yield CheckResult(check="faiss", state="warning", found=f"cannot be imported: {error}", mend=mend)
        return
    there = torch.cuda.device_count()
    on_gpus = f"; on {'the GPU' if there == 1 else f'{there} GPUs'} torch searches" if there else ""
    found = f"{faiss.__version__} searches on a CPU, with as many threads as a trial has CPUs{on_gpus}"
    yield CheckResult(check="faiss", state="ok", found=found)


def _mps() -> Iterator[CheckResult]:
    """Whether the trials that share a GPU compute side by side there."""
    if not torch.cuda.device_count():
        return
    found, mend = mps_daemon(os.environ, PIPES)
    yield CheckResult(check="mps", state="warning" if mend else "ok", found=found, mend=mend)


def _token() -> Iterator[CheckResult]:
    path = token_path()
    if path is None:
        yield CheckResult(check="token", state="ok", found="in the environment")
    elif not path.is_file():
        mend = "The first search makes one; for a cluster copy the file from its head."
        yield CheckResult(check="token", state="warning", found=f"{path} is not there yet", mend=mend)
    elif path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield CheckResult(check="token", state="failed", found=f"others may read {path}", mend=f"chmod 600 {path}")
    else:
        yield CheckResult(check="token", state="ok", found=str(path))


def _ray() -> Iterator[CheckResult]:
    where = os.environ.get("RAY_ADDRESS") or "this machine"
    try:
        with ray_session() as ray:
            nodes, resources = len(ray.nodes()), ray.cluster_resources()
    except NoRay as error:
        mend = "Start Ray at RAY_ADDRESS and copy its token here, or unset it to use this machine."
        yield CheckResult(check="ray", state="failed", found=str(error), mend=mend)
        return
    has = f"{resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs"
    yield CheckResult(check="ray", state="ok", found=f"{ray.__version__} on {where}: {nodes} nodes, {has}")


MACHINE_CHECKS: tuple[Callable[[], Iterator[CheckResult]], ...] = (_python, _torch, _faiss, _mps, _token, _ray)


def _data(plan: Plan) -> Iterator[CheckResult]:
    split = plan.split
    found = f"{len(split.train)} classes train, {len(split.validation)} validate, {len(split.test)} test"
    yield CheckResult(check="data", state="ok", found=f"{plan.config.dataset.name}: {found}")


def _images(plan: Plan) -> Iterator[CheckResult]:
    """The images' files from outside; decoding those of training classes would take too long here."""
    source = plan.config.dataset.source
    classes = source.classes()
    parts = {
        "training": (plan.images.class_names, "Replace them; a search refuses to begin with what it cannot decode."),
        "test": (plan.split.test, MEND),
    }
    for part, (names, mend) in parts.items():
        keys = [key for name in names for key in classes[name]]
        look = look_at(source, keys, seconds=LOOK_S)
        found = look.sentence(f"{part} classes") or f"none of {len(keys):,} looks damaged, and none was decoded"
        yield CheckResult(
            check=f"{part} images",
            state="warning" if look.damaged else "ok",
            found=found.rstrip("."),
            mend=mend if look.damaged else "",
        )


def _disk(plan: Plan) -> Iterator[CheckResult]:
    """Space for images, checkpoints and results, for each file system that they go to."""
    needs = disk_needs([plan])
    for space in spaces_of(needs):
        if space.refusal:
            yield CheckResult(check="disk", state="failed", found=space.in_words, mend=space.refusal)
        else:
            state: Literal["ok", "warning"] = "warning" if space.warning else "ok"
            yield CheckResult(check="disk", state=state, found=space.in_words, mend=space.warning or "")
    for sentence in limit_warnings(needs):
        yield CheckResult(check="cache", state="warning", found=sentence.rstrip("."))


def _memory(plan: Plan) -> Iterator[CheckResult]:
    """Memory for as many trials as this machine has room for: processes, weights, gradients and Adam's moments."""
    slots, resources = slots_here(plan.config), plan.config.resources
    of_trials = 0 if resources.gpus_per_trial else slots * 16 * numbers_of(plan.config)
    need = resources.workers(slots) * PROCESS_BYTES + of_trials
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = f"{slots} trials at once: at least {_gigabytes(need)} of {_gigabytes(has)}"
    mend = "Set search.max_concurrent to fewer, or resources.cpus_per_trial to more."
    yield (
        CheckResult(check="memory", state="ok", found=found)
        if need < has
        else CheckResult(check="memory", state="failed", found=found, mend=mend)
    )


def _sampling(plan: Plan) -> Iterator[CheckResult]:
    """Whether trials end before the next ones are proposed."""
    slots, losses = slots_here(plan.config), plan.config.loss_names
    samplers = [sampler for loss in losses if (sampler := plan.budget(loss).sampler)]
    blind = any(is_blind(sampler, slots, len(losses)) for sampler in samplers)
    told = (left_to_chance(plan.config.search.sampler, sampler, slots, len(losses)) for sampler in samplers)
    for text in filter(None, dict.fromkeys(told)):
        yield CheckResult(check="sampling", state="warning" if blind else "ok", found=text.rstrip("."))


def _cost(plan: Plan) -> Iterator[CheckResult]:
    """A few steps of each loss's default on this machine: their time and memory, and what the search takes by them."""
    resources = plan.config.resources
    here = {"CPU": float(os.cpu_count() or 1), "GPU": float(torch.cuda.device_count())}
    if not trials_on(here, wanted(resources)):
        found = "not measured: this machine has no room for a trial"
        yield CheckResult(check="time", state="warning", found=found, mend="Ask on a machine that will train.")
        return
    try:
        costs = measured_costs_of(plan)
    except Exception as error:  # whatever would end the trials
        reason = (
            "its process was killed" if isinstance(error, BrokenProcessPool) else f"{type(error).__name__}: {error}"
        )
        mend = "Trials would fail as well; where memory is short, set training.batch_size to less."
        yield CheckResult(check="step", state="failed", found=f"a training could not be measured ({reason})", mend=mend)
        return
    steps = ", ".join(f"{loss} {_seconds(cost.step)} a step" for loss, cost in costs.items())
    most = max(costs.values(), key=lambda cost: cost.memory)
    epoch = f"an epoch has {most.steps} and {_seconds(most.validation)} of validation"
    yield CheckResult(check="step", state="ok", found=f"{steps}; {epoch}; {_gigabytes(most.memory)} at the peak")
    if most.device_memory is not None and resources.gpus_per_trial < 1:
        yield _share(resources, DeviceMemory(peak=most.memory, total=most.device_memory))
    try:
        slots = _slots(plan.config, here)
    except NoRay:
        return  # the check of Ray says so
    except Mistakes as error:
        found = "not even one trial fits on the cluster"
        yield CheckResult(check="cluster", state="failed", found=found, mend=" ".join(error.sentences))
        return
    took = expected_seconds(plan, expected_works(plan), costs, slots)
    found = f"about {_minutes(took)} with {slots} trials at once, and then the scoring of the test"
    yield CheckResult(check="time", state="ok", found=found)


def _slots(config: SearchConfig, here: Node) -> int:
    """How many trials run at once: on the cluster at RAY_ADDRESS, else on this machine, which has ``here``."""
    resources, most = config.resources, config.search.max_concurrent
    if not os.environ.get("RAY_ADDRESS"):
        return at_once(resources, most, [here])
    with ray_session():
        from search.cluster.tune.tuner import slots

        return slots(resources, most)


def _share(resources: ResourcesSection, memory: DeviceMemory) -> CheckResult:
    """Whether as many trials, or stacks of them, fit on a GPU as their share says."""
    need, fit = fitting(memory)
    what = "trial" if resources.stack == 1 else f"stack of {resources.stack}"
    found = f"a {what} takes {_gigabytes(need)} of {_gigabytes(memory['total'])}, so {fit} fit on a GPU"
    mend = too_tight(resources.gpus_per_trial, memory, resources.stack)
    return CheckResult(check="gpu share", state="failed" if mend else "ok", found=found, mend=mend or "")


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s"


def _minutes(seconds: float) -> str:
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 600 else f"{seconds / 60:.1f} min"


SEARCH_CHECKS: tuple[Callable[[Plan], Iterator[CheckResult]], ...] = (_data, _images, _disk, _memory, _sampling, _cost)


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def examine(config: SearchConfig | None, runs: Path) -> Iterator[CheckResult]:
    """Every check of this machine, and those of a search where one is named."""
    for check in MACHINE_CHECKS:
        yield from check()
    if config is None:
        return
    try:
        plan = make_plan(config, runs)
    except Mistakes as error:
        for sentence in error.sentences:
            yield CheckResult(check="search", state="failed", found=sentence)
        return
    addresses = {"storage": config.search.storage, "tracking": config.tracking.uri}
    for check_name, address in addresses.items():
        yield CheckResult(check=check_name, state="ok", found=address or "a file in the runs folder")
    for of_search in SEARCH_CHECKS:
        yield from of_search(plan)
