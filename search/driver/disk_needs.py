"""An estimate of the bytes that searches will write, checked against the free space before they begin."""

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
from search.stages import BASELINES, Stage
from trainables.data.store.build import StoreSize, expected_size
from trainables.data.store.cache import is_used, limit_of, stores_in
from trainables.data.store.spec import StoreSpec
from trainables.files import as_path
from trainables.losses import loss_row
from trainables.mistakes import raise_if_any
from trainables.models.backbones import backbone
from trainables.storage import existing

NUMBER = 4
"""Bytes per weight."""

STATES = 3
"""Numbers per weight in a checkpoint to resume from: the weight and two moments of Adam, without its average."""

OF_TRIAL, OF_EPOCH = 9_000, 700
"""Bytes per trial and per epoch: log, ``trial.json``, and rows in the studies and in MLflow."""

OF_SEARCH, OF_MLFLOW, OF_REPORT = 200_000, 1_200_000, 5_300_000
"""Bytes of a new study database, of a new MLflow database, and of a report with its script and figures."""

OF_CURVES, OF_TEST_IMAGE, OF_METRIC, OF_NEIGHBOURS = 20_000, 16, 6, 20
"""Bytes of a tested model's results: its curves and a sample of embeddings; per test image its label and key, each
metric, and its neighbours."""

SURE = 0.9
"""Factor for the lower bound: a margin for rounding in this estimate."""


class What(StrEnum):
    """What the bytes are for."""

    IMAGES = "images"
    CHECKPOINTS = "checkpoints"
    RESULTS = "results"


@dataclass(frozen=True, kw_only=True)
class Need:
    """Bytes that will be written to ``place``, a path or a URL: ``expected``, and at ``least``."""

    what: What
    place: str
    expected: int
    least: int


def slots_here(config: SearchConfig) -> int:
    """Return the number of trials that run at once on this machine; counts one GPU, since counting them needs torch."""
    cpus = (os.cpu_count() or 1) / config.resources.cpus_per_trial
    slots = 1 if config.resources.gpus_per_trial else max(1, int(cpus))
    return min(slots, config.search.max_concurrent or slots)


def disk_needs(plans: Sequence[Plan]) -> list[Need]:
    """Estimate the remaining bytes of searches that run together.

    A sample of the training half's image files is read; test images are assumed to have the same size.
    """
    needs = [*_images(plans), _shared(plans[0])]
    for plan in plans:
        needs += _written(plan, slots_here(plan.config))
    return [need for need in _together(needs) if need.expected]


def _shared(plan: Plan) -> Need:
    """Estimate what all searches share: the report, and MLflow's database with its copy of the report."""
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
            tests.add(test)  # counted even if they are decoded already
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
    # A trial writes its new checkpoint before it removes the old one.
    expected = min(searched.most, limit) + later.most + 2 * slots * going_on
    least = SURE * (min(searched.least, limit) + later.least + going_on)
    yield Need(
        what=What.CHECKPOINTS,
        place=storage,
        expected=max(0, round(expected) - written),
        least=max(0, round(least) - written),
    )
    if config.model.is_pretrained and Stage.TEST in config.stages:
        trained += len(BASELINES)
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
    """A lower and an upper bound."""

    least: int = 0
    most: int = 0

    def __add__(self, other: "_Range") -> "_Range":
        return _Range(least=self.least + other.least, most=self.most + other.most)

    def times(self, factor: int) -> "_Range":
        return _Range(least=self.least * factor, most=self.most * factor)


def _models(plan: Plan, loss: str) -> Mapping[Stage, _Range]:
    """Return the number of models that each requested stage leaves: one per trial, or one per fold."""
    stages, folds = plan.config.stages, max(1, len(plan.split.folds))
    found = {}
    for stage, budget in planned_budgets(plan, loss).items():
        each = 1 if stage is Stage.TEST else folds  # a trial of the test trains one fold
        sure = {
            Stage.NOISE: budget.most,
            Stage.SEARCH: 0 if budget.may_end_early else budget.most,
            Stage.SELECT: 1,
            Stage.TEST: budget.most // 2,  # the best configuration may be the default
        }
        found[stage] = _Range(least=sure[stage], most=budget.most).times(each) if stage in stages else _Range()
    return found


def _model_bytes(plan: Plan, loss: str) -> int:
    """Return the size of a model file: the network's weights and the loss's proxies.

    What a user-defined training saves is not known before it does, and counts as nothing.
    """
    config = plan.config
    if config.trainable is not None:
        return 0
    numbers = numbers_of(config)
    if loss_row(config.loss(loss).key).proxy_lr is not None:
        proxies = plan.spaces[loss].default.get("proxies_per_class", 1)
        classes = math.ceil((len(plan.split.train) + len(plan.split.validation)) / plan.split.merge)
        assert isinstance(proxies, int)
        numbers += proxies * classes * config.model.dimensions
    return NUMBER * numbers


def numbers_of(config: SearchConfig) -> int:
    """Return the number of weights of the network; a user-defined network is built to count them."""
    row, model = backbone(config.model.backbone), config.model
    if row.numbers is not None and model.head == "linear":
        return row.numbers * (not model.is_frozen) + (model.features + 1) * model.dimensions
    from trainables.models import EmbeddingModel  # the check of such a network has imported torch already

    network = EmbeddingModel(replace(model, weights=None, freeze=None))
    learned = network.head if model.is_frozen else network
    return sum(tensor.numel() for tensor in learned.state_dict().values())


def _result_bytes(config: SearchConfig, images: int) -> int:
    """Return the bytes of one tested model's results on ``images`` test images."""
    metrics = len(config.test_metrics)
    return OF_CURVES + images * (OF_TEST_IMAGE + OF_METRIC * metrics) + min(images, MOST_NEIGHBOURS) * OF_NEIGHBOURS


# Needs against free space.

TIGHT = 0.9
"""Share of the free space above which a warning is given."""

INSTEAD = {
    What.IMAGES: "dataset.cache to another folder",
    What.CHECKPOINTS: "checkpoints.storage_path to another folder or checkpoints.max_gb to less",
    What.RESULTS: "--runs to another folder",
}


@dataclass(frozen=True, kw_only=True)
class Space:
    """A file system, the bytes to be written there, and its ``free`` bytes; None if unknown (remote storage).

    Unused decoded images count as free, since they are removed when room is needed.
    """

    needs: tuple[Need, ...]
    free: int | None

    @property
    def expected(self) -> int:
        """Bytes that will be written."""
        return sum(need.expected for need in self.needs)

    @property
    def least(self) -> int:
        """Bytes that will be written at the least."""
        return sum(need.least for need in self.needs)

    @property
    def in_words(self) -> str:
        """The needs and the free space, in words."""
        free = "free space unknown" if self.free is None else f"{_size(self.free)} free"
        needs = ", ".join(f"{_size(need.expected)} for {need.what} in {_shown(need.place)}" for need in self.needs)
        return f"about {needs} ({free})"

    @property
    def refusal(self) -> str | None:
        """The error if even the lower bound does not fit."""
        if self.free is None or self.least <= self.free:
            return None
        kinds = " and ".join(dict.fromkeys(need.what for need in self.needs))
        places = " and ".join(dict.fromkeys(_shown(need.place) for need in self.needs))
        instead = ", or ".join(INSTEAD[what] for what in dict.fromkeys(need.what for need in self.needs))
        return (
            f"{places}: {kinds} need at least {_size(self.least)}, but only {_size(self.free)} are free; make room "
            f"there, or set {instead}."
        )

    @property
    def warning(self) -> str | None:
        """The warning if the expected bytes may not fit."""
        if self.free is None or self.refusal or self.expected <= TIGHT * self.free:
            return None
        places = " and ".join(dict.fromkeys(_shown(need.place) for need in self.needs))
        return (
            f"{places}: about {_size(self.expected)} will be written, and {_size(self.free)} are free. If the disk "
            "fills up, the search ends, and the same command resumes it when there is room."
        )


def check_space(plans: Sequence[Plan]) -> tuple[str, ...]:
    """Return sentences on what searches will write and what is free, with warnings.

    Raises:
        Mistakes: it cannot fit; one sentence per file system.
    """
    needs = disk_needs(plans)
    spaces = spaces_of(needs)
    raise_if_any([space.refusal for space in spaces if space.refusal])
    summary = [f"Disk: {'; '.join(space.in_words for space in spaces)}."] if spaces else []
    return (*summary, *(space.warning for space in spaces if space.warning), *limit_warnings(needs))


def spaces_of(needs: Sequence[Need]) -> list[Space]:
    """Group the needs by file system."""
    systems = defaultdict[int | str, list[Need]](list)
    for need in needs:
        systems[need.place if "://" in need.place else os.stat(existing(Path(need.place))).st_dev].append(need)
    return [Space(needs=tuple(same), free=_free(same)) for same in systems.values()]


def limit_warnings(needs: Sequence[Need]) -> list[str]:
    """Return warnings about images that exceed the limit of the cache."""
    images = [(Path(need.place), need.expected) for need in needs if need.what is What.IMAGES]
    return [
        f"{_shown(str(cache))}: the images take about {_size(size)}, more than the limit of {_size(limit)} "
        "(HOLDOUT_CACHE_GB); images in use are never removed."
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
