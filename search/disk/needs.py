"""An estimate of the bytes that searches will write, checked against the free space before they begin."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.filesize import decimal

from search.disk.usage import cache_usage, free_bytes, size_of
from search.plan.plan import Plan
from search.plan.runs import trials_in
from search.plan.work import model_bytes, planned_budgets, slots_here
from search.stages import Stage
from trainables.data.store.build import expected_size
from trainables.data.store.spec import StoreSpec
from trainables.errors import raise_if_any
from trainables.files import as_path
from trainables.secrets import without_password
from trainables.storage import existing

CHECKPOINTS = "checkpoints"

TIGHT = 0.9
"""The share of the free space above which a warning is given, and of the images that are surely written."""

STATES = 3
"""Numbers per weight in a checkpoint to resume from: the weight and two moments of Adam, without its average."""

Needs = Counter[tuple[str, str]]
"""Bytes that will be written for a purpose to a place, which is a path or a URL."""


def disk_needs(plans: Sequence[Plan]) -> Needs:
    """Estimate the remaining bytes of searches that run together; results and reports are small and not counted.

    A sample of the training half's image files is read; test images are assumed to have the same size.
    """
    needs = _images(plans)
    for plan in plans:
        place = as_path(trials_in(plan.checkpoint_storage, plan.config.name))
        there = size_of(place) if isinstance(place, Path) else 0
        needs[CHECKPOINTS, plan.checkpoint_storage] += max(0, _checkpoints(plan) - there)
    return +needs  # without zeros


def _images(plans: Sequence[Plan]) -> Needs:
    needs = Needs()
    sizes: dict[StoreSpec, int] = {}
    tests = set()
    for plan in plans:
        spec, classes = plan.images, plan.classes
        if spec not in sizes:
            keys = [key for name in spec.class_names for key in classes[name]]
            sizes[spec] = expected_size(spec.dataset, keys, spec.short_side)
            needs[spec.dataset.noun, spec.cache] += 0 if spec.find() else sizes[spec]
        test = replace(spec, class_names=plan.split.test)
        if Stage.TEST in plan.config.stages and not plan.folder.test.exists() and test not in tests:
            tests.add(test)  # counted even if they are decoded already
            trained, held_out = (sum(len(classes[name]) for name in of.class_names) for of in (spec, test))
            needs[spec.dataset.noun, spec.cache] += round(sizes[spec] * held_out / trained)
    return needs


def _checkpoints(plan: Plan) -> int:
    """Return the most bytes that the checkpoints of a search take."""
    config, folds = plan.config, max(1, len(plan.split.folds))
    searched = later = largest = 0
    for loss in config.loss_names:
        size = model_bytes(plan, loss)
        largest = max(largest, size * STATES)
        for stage, budget in planned_budgets(plan, loss).items():
            if stage is Stage.SEARCH:
                searched += size * budget.most * folds
            elif stage in config.stages:
                later += size * budget.most * (1 if stage is Stage.TEST else folds)  # a test trial trains one fold
    if config.checkpoints.max_gb is not None:
        searched = min(searched, round(config.checkpoints.max_gb * 1e9))
    # A trial writes its new checkpoint before it removes the old one.
    return searched + later + 2 * slots_here(config) * largest


MAY_NOT_FIT = "may not fit: if the disk fills up, the search ends, and the same command resumes it when there is room"


def check_space(plans: Sequence[Plan]) -> list[str]:
    """Return a sentence per file system on what searches will write and what is free.

    Unused decoded images count as free, since they are removed when room is needed.

    Raises:
        InvalidInput: the images cannot fit.
    """
    sentences, mistakes = [], []
    for needs in _by_file_system(disk_needs(plans)):
        free = _free(needs)
        told = ", ".join(f"{decimal(size)} for {what} in {_shown(place)}" for (what, place), size in needs.items())
        told = f"about {told} ({'free space unknown' if free is None else f'{decimal(free)} free'})"
        images = sum(size for (what, _), size in needs.items() if what != CHECKPOINTS)
        if free is None or needs.total() <= TIGHT * free:
            sentences.append(f"Disk: {told}.")
        elif TIGHT * images <= free:
            sentences.append(f"Disk: {told}; it {MAY_NOT_FIT}.")
        else:
            mistakes.append(f"The disk is too small: {told}; make room, or set dataset.cache to another disk.")
    raise_if_any(mistakes)
    return sentences


def _by_file_system(needs: Needs) -> Iterable[Needs]:
    systems: dict[int | str, Needs] = {}
    for (what, place), size in needs.items():
        system = place if "://" in place else os.stat(existing(Path(place))).st_dev
        systems.setdefault(system, Needs())[what, place] = size
    return systems.values()


def _free(needs: Needs) -> int | None:
    (_, place), *_ = needs
    if "://" in place:
        return None
    return free_bytes(Path(place)) + sum(cache_usage(Path(at)).removable for what, at in needs if what != CHECKPOINTS)


def _shown(place: str) -> str:
    return without_password(place) if "://" in place else str(Path(place).absolute())
