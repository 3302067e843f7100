"""How much a search will write, compared with the free space."""

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from search.config.search_config import SearchConfig
from search.plan.disk_usage import file_size, folder_size, free_bytes
from search.plan.plan import Plan
from search.plan.work import planned_budgets
from search.secrets import without_password
from search.selection import MOST_NEIGHBOURS
from search.stages import Stage
from trainables.data.store.build import StoreSize, expected_size
from trainables.data.store.cache import is_used, limit_of, stores_in
from trainables.data.store.spec import StoreSpec
from trainables.files import as_path
from trainables.losses import loss_row
from trainables.metrics import all_metrics
from trainables.mistakes import raise_if_any
from trainables.models.backbones import backbone
from trainables.storage import existing

# What searches will write, before they begin or go on: images, checkpoints, results.

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


# What searches will write, against what is free: said before they begin, and refused where it cannot fit.

TIGHT = 0.9
"""Of what is free: searches that take more are warned of."""

INSTEAD = {
    What.IMAGES: "dataset.cache to another folder",
    What.CHECKPOINTS: "checkpoints.storage_path to another folder or checkpoints.max_gb to less",
    What.RESULTS: "--runs to another folder",
}


@dataclass(frozen=True, kw_only=True)
class Space:
    """A file system and what will be written there; ``free`` in bytes, None where that is not known, as of a store.

    Images that nobody uses, and that make room for others, count as free.
    """

    needs: tuple[Need, ...]
    free: int | None

    @property
    def expected(self) -> int:
        """Bytes that will be written."""
        return sum(need.expected for need in self.needs)

    @property
    def least(self) -> int:
        """Bytes that will be written at least."""
        return sum(need.least for need in self.needs)

    @property
    def in_words(self) -> str:
        """What will be written where, and what is free."""
        free = "what is free there is not known" if self.free is None else f"{_size(self.free)} free"
        told = ", ".join(f"{_size(need.expected)} for {need.what} in {_shown(need.place)}" for need in self.needs)
        return f"about {told} ({free})"

    @property
    def refusal(self) -> str | None:
        """The sentence on what cannot fit."""
        if self.free is None or self.least <= self.free:
            return None
        kinds = " and ".join(dict.fromkeys(need.what for need in self.needs))
        places = " and ".join(dict.fromkeys(_shown(need.place) for need in self.needs))
        instead = ", or ".join(INSTEAD[what] for what in dict.fromkeys(need.what for need in self.needs))
        return (
            f"{places}: {kinds} need {_size(self.least)} at least, and {_size(self.free)} are free; make room there, "
            f"or set {instead}."
        )

    @property
    def warning(self) -> str | None:
        """The sentence on what may not fit, or will hardly."""
        if self.free is None or self.refusal or self.expected <= TIGHT * self.free:
            return None
        places = " and ".join(dict.fromkeys(_shown(need.place) for need in self.needs))
        return (
            f"{places}: about {_size(self.expected)} will be written and {_size(self.free)} are free. Should the disk "
            "be full, the search ends, and the same command goes on when there is room."
        )


def check_space(plans: Sequence[Plan]) -> tuple[str, ...]:
    """What searches that begin or go on will write, and what is free, in sentences; none where that is nothing.

    Raises:
        Mistakes: it cannot fit, a sentence for each file system.
    """
    needs = disk_needs(plans)
    spaces = spaces_of(needs)
    raise_if_any([space.refusal for space in spaces if space.refusal])
    said = [f"Disk: {'; '.join(space.in_words for space in spaces)}."] if spaces else []
    return (*said, *(space.warning for space in spaces if space.warning), *limit_warnings(needs))


def spaces_of(needs: Sequence[Need]) -> list[Space]:
    """The needs of each file system, and what is free there."""
    systems = defaultdict[int | str, list[Need]](list)
    for need in needs:
        systems[need.place if "://" in need.place else os.stat(existing(Path(need.place))).st_dev].append(need)
    return [Space(needs=tuple(same), free=_free(same)) for same in systems.values()]


def limit_warnings(needs: Sequence[Need]) -> list[str]:
    """The sentences on images that take more than the cache is to keep."""
    images = [(Path(need.place), need.expected) for need in needs if need.what is What.IMAGES]
    return [
        f"{_shown(str(cache))}: the images take about {_size(size)}, and {_size(limit)} are to be kept there "
        "(HOLDOUT_CACHE_GB); what a search uses is never removed."
        for cache, size in images
        if size > (limit := limit_of(cache))
    ]


def _free(needs: Sequence[Need]) -> int | None:
    if "://" in needs[0].place:
        return None
    caches = {Path(need.place) for need in needs if need.what is What.IMAGES}
    idle = sum(store.size for cache in caches for store in stores_in(cache) if not is_used(store.path.with_suffix("")))
    return free_bytes(Path(needs[0].place)) + idle


def _shown(place: str) -> str:
    return without_password(place) if "://" in place else str(Path(place).absolute())


def _size(count: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"
