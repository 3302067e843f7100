"""How long a search will take, before it begins: by what a training was measured to cost."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import accumulate
from math import ceil
from multiprocessing import get_context
from tempfile import TemporaryDirectory

from search.plan.plan import Plan
from search.plan.progress.work import Work, planned_budgets, seconds_left
from search.plan.runs import RunFolder
from search.plan.stored import StoredSearch
from search.study.names import Stage, study_name
from search.study.pruners import PRUNERS
from search.study.tally import Tally
from trainables.spec import TrialSpec
from trainables.training.cost import Cost, Images, measured_costs

START_S = 20
"""From the command to the first epoch, on two cores (``make bench-overhead``)."""


def measured_trainings(plan: Plan, directory: str) -> dict[str, TrialSpec]:
    """Each loss's default as a training that validates nothing, for a measurement in the folder ``directory``.

    Of the images that are decoded already, or else of enough classes for a few batches, which are decoded there.
    """
    config, train = plan.config, plan.split.train
    images = plan.images
    if images.find() is None:
        train = _first_classes(plan)
        images = replace(images, class_names=train, cache=f"{directory}/images")
    specs = {}
    for loss in config.loss_names:
        default = plan.spaces[loss].default
        specs[loss] = TrialSpec(
            loss=config.loss(loss).key,
            hyperparameters=default.hyperparameters,
            model=config.model,
            training=replace(config.training_of(loss), **default.training),
            images=images,
            train_classes=train,
            validation_classes=(),
            merge=plan.split.merge,
            metrics=plan.metrics,
            objective=config.search.objective,
            seed=0,
            directory=f"{directory}/{loss}",
        )
    return specs


def _first_classes(plan: Plan) -> tuple[str, ...]:
    """Classes with images for two batches, and as many of them as two batches want."""
    training, classes = plan.config.training, plan.config.dataset.source.classes()
    wanted = 2 * ceil(training.batch_size / training.images_per_class) * plan.split.merge
    images = accumulate(len(classes[name]) for name in plan.split.train)
    enough = next((number for number, count in enumerate(images, 1) if count >= 2 * training.batch_size), wanted)
    return plan.split.train[: max(wanted, enough)]


def measured_costs_of(plan: Plan) -> dict[str, Cost]:
    """What each loss's default costs on this machine, alone or in a stack, measured in a process of its own.

    Nothing of it stays.

    Raises:
        Exception: what ended the training, such as a lack of memory.
    """
    resources = plan.config.resources
    with TemporaryDirectory() as folder, ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        trainings = measured_trainings(plan, folder)
        found = process.submit(
            measured_costs,
            list(trainings.values()),
            images_of(plan),
            threads=max(1, int(resources.cpus_per_trial)),
            gpu=resources.gpus_per_trial > 0,
            stack=resources.stack,
        )
        return dict(zip(trainings, found.result(), strict=True))


def images_of(plan: Plan) -> Images:
    """How many images a training of the search has; of a cross-validation the first fold's."""
    classes = plan.config.dataset.source.classes()
    validation = plan.split.folds[0] if plan.split.folds else plan.split.validation
    held_out = set(validation)
    train = tuple(len(classes[name]) for name in plan.split.train if name not in held_out)
    return Images(
        train=train,
        validation=tuple(len(classes[name]) for name in validation),
        gallery=sum(map(_half, train)) if plan.config.metrics.gallery == "training_half" else 0,
    )


def _half(images: int) -> int:
    return (images + 1) // 2


def expected_works(plan: Plan) -> list[Work]:
    """The trials of all stages, each with the epochs that it is expected to train."""
    config, stages = plan.config, {*plan.config.stages}
    works = []
    for loss in config.loss_names:
        for stage, budget in planned_budgets(plan, loss).items():
            if stage not in stages and not (stage is Stage.AUDIT and Stage.SEARCH in stages):
                continue
            epochs: float = config.training.epochs
            if stage is not Stage.TEST:
                epochs *= max(1, len(plan.split.folds))
            if stage is Stage.SEARCH:
                budget = replace(budget, trials=max(0, budget.trials - _copied(plan, loss)))
                pruner = PRUNERS[config.search.pruner](steps=plan.steps, unit=plan.unit)
                epochs *= pruner.expected_steps(budget.most) / plan.steps
            works.append(
                Work(
                    study=study_name(config.name, loss, stage), loss=loss, stage=stage,
                    budget=budget, tally=Tally(), epochs_each=epochs,
                )
            )  # fmt: skip
    return works


def _copied(plan: Plan, loss: str) -> int:
    """How many trials the search begins with."""
    if plan.config.search.origin is None:
        return 0
    with closing(StoredSearch(RunFolder(plan.folder.runs, plan.config.search.origin))) as source:
        return sum(trial.state.is_finished() for trial in source.trials(loss))


def expected_seconds(plan: Plan, works: Sequence[Work], costs: Mapping[str, Cost], concurrent: int) -> float:
    """From the command to the end of the last training, with so many trials at once; the test's scoring comes after."""
    trained = seconds_left(works, {(plan.config.name, loss): cost.epoch for loss, cost in costs.items()}, concurrent)
    return START_S + (trained or 0.0)
