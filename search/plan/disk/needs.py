"""What searches will write, before they begin or go on: images, checkpoints, results."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from search.config.search_config import SearchConfig
from search.plan.disk.folder_size import file_size, folder_size
from search.plan.plan import Plan
from search.plan.progress.work import planned_budgets
from search.selection.scores.retrieval_file import MOST_NEIGHBOURS
from search.study.names import Stage
from trainables.data.store.size import StoreSize, expected_size
from trainables.data.store.spec import StoreSpec
from trainables.files.whole import as_path
from trainables.losses import loss_row
from trainables.metrics import all_metrics
from trainables.models.backbones import backbone

NUMBER = 4
"""Bytes of a weight."""

STATES = 3
"""Numbers that there is to go on from for each that learns: itself and two moments of Adam's."""

OF_TRIAL, OF_EPOCH = 9_000, 700
"""Bytes of a trial and of one of its epochs: the log, ``trial.json``, and the rows of the studies and of MLflow."""

OF_SEARCH, OF_MLFLOW, OF_REPORT = 200_000, 1_200_000, 5_300_000
"""Bytes of empty databases; and of the report with its script and some pictures."""

OF_CURVES, OF_TEST_IMAGE, OF_METRIC, OF_NEIGHBOURS = 20_000, 16, 6, 20
"""Bytes of a model's results: its curves and a sample of its embeddings; of each test image its label and key, each
metric, and its neighbours."""

SURE = 0.9
"""Of the bytes that are certain: a margin for what is rounded here."""


class What(StrEnum):
    """What takes the space."""

    IMAGES = "images"
    CHECKPOINTS = "checkpoints"
    RESULTS = "results"


@dataclass(frozen=True, kw_only=True)
class Need:
    """Bytes that will be written in ``place``, a path or a URL: ``expected``, and at ``least``."""

    what: What
    place: str
    expected: int
    least: int


def slots_here(config: SearchConfig) -> int:
    """How many trials run at once on this machine; of its GPUs, which only torch counts, one is known."""
    cpus = (os.cpu_count() or 1) / config.resources.cpus_per_trial
    slots = config.resources.stack * (1 if config.resources.gpus_per_trial else max(1, int(cpus)))
    return min(slots, config.search.max_concurrent or slots)


def disk_needs(plans: Sequence[Plan]) -> list[Need]:
    """What searches that begin or go on together will still write; nothing is written now.

    Images are those of the training half, some of which are looked at; those of the test are taken to be like them.
    """
    needs = [*_images(plans), _shared(plans[0])]
    for plan in plans:
        needs += _written(plan, slots_here(plan.config))
    return [need for need in _together(needs) if need.expected]


def _shared(plan: Plan) -> Need:
    """What is written once, however many searches a campaign has: its report, and MLflow's tables and copy of it."""
    there = file_size(plan.folder.report)
    expected = OF_REPORT
    if plan.config.tracking.uri is None:
        there += file_size(plan.folder.runs / "mlflow.db")
        expected += OF_MLFLOW + OF_REPORT
    return Need(what=What.RESULTS, place=str(plan.folder.runs), expected=max(0, expected - there), least=0)


def _together(needs: Sequence[Need]) -> Iterator[Need]:
    for what, place in dict.fromkeys((need.what, need.place) for need in needs):
        same = [need for need in needs if (need.what, need.place) == (what, place)]
        yield Need(
            what=what,
            place=place,
            expected=sum(need.expected for need in same),
            least=sum(need.least for need in same),
        )


def _images(plans: Sequence[Plan]) -> Iterator[Need]:
    sizes: dict[StoreSpec, StoreSize] = {}
    tests = set()
    for plan in plans:
        spec = plan.images
        classes = spec.dataset.classes()
        if spec not in sizes:
            keys = [key for name in spec.class_names for key in classes[name]]
            sizes[spec] = size = expected_size(spec.dataset, keys, spec.short_side)
            if spec.find() is None:
                yield Need(what=What.IMAGES, place=spec.cache, expected=size.expected, least=size.least)
        test = replace(spec, class_names=plan.split.test)
        if Stage.TEST in plan.config.stages and not plan.folder.test.exists() and test not in tests:
            tests.add(test)  # only counted: whether they are decoded already is not looked at
            trained = sum(len(classes[name]) for name in spec.class_names)
            held_out = sum(len(classes[name]) for name in plan.split.test)
            expected = round(sizes[spec].expected * held_out / trained)
            yield Need(what=What.IMAGES, place=spec.cache, expected=expected, least=0)


def _written(plan: Plan, slots: int) -> Iterator[Need]:
    config, folder, storage = plan.config, plan.folder, plan.checkpoint_storage
    limit = math.inf if config.checkpoints.max_gb is None else config.checkpoints.max_gb * 1e9
    copies = 1 if config.tracking.uri else 2  # MLflow keeps the models too
    trials = trained = results = 0
    searched, later, going_on = _Range(), _Range(), 0
    for loss in config.loss_names:
        best = _model_bytes(plan, loss)
        going_on = max(going_on, best * STATES)
        for stage, count in _models(plan, loss).items():
            models = count.times(best)
            if stage is Stage.SEARCH:
                searched += models
            else:
                later += models
            trials += count.most
        if Stage.TEST in config.stages:
            results += best * copies  # the chosen model
            trained += _models(plan, loss)[Stage.TEST].most
    there = as_path(f"{storage}/{config.name}/trials")
    written = folder_size(there) if isinstance(there, Path) else 0
    # Who goes on writes the new state beside the old one.
    expected = min(searched.most, limit) + later.most + 2 * slots * going_on
    least = SURE * (min(searched.least, limit) + later.least + going_on)
    yield Need(
        what=What.CHECKPOINTS,
        place=storage,
        expected=max(0, round(expected) - written),
        least=max(0, round(least) - written),
    )
    held_out = plan.split.test if Stage.TEST in config.stages else ()
    classes = config.dataset.source.classes()
    rows = (
        OF_SEARCH
        + trials * (OF_TRIAL + OF_EPOCH * config.training.epochs)
        + trained * _result_bytes(config, sum(len(classes[name]) for name in held_out))
    )
    written = folder_size(folder.path) - folder_size(folder.path / "trials") - file_size(folder.report)
    yield Need(
        what=What.RESULTS,
        place=str(folder.runs),
        expected=max(0, rows + results - written),
        least=max(0, round(SURE * results) - written),
    )


@dataclass(frozen=True, kw_only=True)
class _Range:
    """A number that is at least and at most so much."""

    least: int = 0
    most: int = 0

    def __add__(self, other: "_Range") -> "_Range":
        return _Range(least=self.least + other.least, most=self.most + other.most)

    def times(self, factor: int) -> "_Range":
        return _Range(least=self.least * factor, most=self.most * factor)


def _models(plan: Plan, loss: str) -> Mapping[Stage, _Range]:
    """How many models each stage that is asked for leaves: of a trial the best one, under cross-validation a fold."""
    config = plan.config
    stages = {*config.stages, *([Stage.AUDIT] if Stage.SEARCH in config.stages else [])}
    folds = max(1, len(plan.split.folds))
    found = {}
    for stage, budget in planned_budgets(plan, loss).items():
        each = 1 if stage is Stage.TEST else folds  # there a trial is of one fold
        sure = {
            Stage.NOISE: budget.most,
            Stage.SEARCH: 0 if budget.epochs else budget.most,
            Stage.AUDIT: 0,
            Stage.SELECT: 1,
            Stage.TEST: budget.most // 2,  # the best configuration may be the default
        }
        found[stage] = _Range(least=sure[stage], most=budget.most).times(each) if stage in stages else _Range()
    return found


def _model_bytes(plan: Plan, loss: str) -> int:
    """The file of a best model: the network's numbers, and the proxies of the loss."""
    config = plan.config
    numbers = numbers_of(config)
    if loss_row(config.loss(loss).key).proxy_lr is not None:
        proxies = plan.spaces[loss].default.get("proxies_per_class", 1)
        classes = math.ceil((len(plan.split.train) + len(plan.split.validation)) / plan.split.merge)
        assert isinstance(proxies, int)
        numbers += proxies * classes * config.model.embedding_dim
    return NUMBER * numbers


def numbers_of(config: SearchConfig) -> int:
    """How many numbers the network holds; one that is not ours is built for it."""
    row = backbone(config.model.backbone)
    if row.numbers is not None:
        return row.numbers + (row.features + 1) * config.model.embedding_dim
    from trainables.models import EmbeddingModel  # torch, which the check of such a network has imported

    model = EmbeddingModel(replace(config.model, weights=None))
    return sum(tensor.numel() for tensor in model.state_dict().values())


def _result_bytes(config: SearchConfig, images: int) -> int:
    """What is kept of one model and ``images`` of the test."""
    metrics = len(all_metrics() if isinstance(config.test_metrics, str) else config.test_metrics)
    return OF_CURVES + images * (OF_TEST_IMAGE + OF_METRIC * metrics) + min(images, MOST_NEIGHBOURS) * OF_NEIGHBOURS
