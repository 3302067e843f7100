"""The baselines of a search: networks that are scored without training, before the search and in the test."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from search.plan.plan import Plan
from search.plan.records import Records
from search.plan.runs import RunFolder
from search.selection import BaselineScoring, Selection, frozen_baselines, save_baselines
from search.stages import Stage
from trainables.data.store.store_spec import StoreSpec
from trainables.training.spec import UntrainedSpec, ValidatedUntrained


def without_baselines(searches: Sequence[Records]) -> list[Records]:
    """Return the searches from pretrained weights whose baselines are not validated yet, and not chosen without."""
    return [
        search
        for search in searches
        if search.config.model.is_pretrained
        and not search.folder.baselines.exists()
        and not search.is_done(Stage.SELECT)
    ]


def validate_baselines(
    searches: Sequence[Records], validate_all: Callable[[Sequence[UntrainedSpec]], Sequence[ValidatedUntrained]]
) -> None:
    """Validate the baselines of ``searches`` with ``validate_all``, once for equal ones, and write their files."""
    specs = [untrained_spec(search.plan) for search in searches]
    unequal = list(dict.fromkeys(specs))
    found = dict(zip(unequal, validate_all(unequal), strict=True))
    for search, spec in zip(searches, specs, strict=True):
        save_baselines(search.folder.baselines, search.folder.whitened, found[spec])


def check_weights(plans: Sequence[Plan]) -> None:
    """Raise :class:`InvalidInput` if a search, or what it continues, began with other weights than its file has now.

    They were digested when the baselines were validated, before the first trial.
    """
    known = []
    for plan in plans:
        folders = [RunFolder(plan.folder.runs, name) for name in (plan.config.name, plan.predecessor) if name]
        begun = [found for folder in folders if (found := Records(folder).baselines)]
        known += [(plan.config.model, found.network) for found in begun if plan.config.model.weights]
    if known:
        from trainables.training.inputs import described_backbone, of_backbone, raise_if_other  # imports torch

        described_backbone.cache_clear()  # a file may have been replaced since this process read it
        for model, network in known:
            raise_if_other(of_backbone(model), network)


def untrained_spec(plan: Plan) -> UntrainedSpec:
    """Return the networks without training of a search, with the classes that validate its trials."""
    config, split = plan.config, plan.split
    on_all = config.final.train_on == "all"
    return UntrainedSpec(
        model=config.model,
        training=config.training,
        images=plan.images,
        divisions=tuple(split.divisions),
        confirming=(split.half(1), split.half(2)) if plan.on_halves else tuple(split.divisions),
        objective=config.search.objective,
        fitted_on=(*split.train, *split.validation) if on_all else split.train,
        metrics=plan.metrics,
        gpu=config.resources.gpus_per_trial > 0,
        gallery_seed=split.seed if config.metrics.gallery == "training_half" else None,
    )


def baseline_scorings(plan: Plan, selection: Selection, images: StoreSpec, *, gpu: bool) -> list[BaselineScoring]:
    """Return the request to score the frozen baselines on ``images``, if any; raise if their files have changed."""
    frozen = frozen_baselines(plan.folder.baselines, plan.folder.whitened, selection.baselines)
    if frozen is None:
        return []
    baselines, whitening = frozen
    return [
        BaselineScoring(
            spec=replace(untrained_spec(plan), gpu=gpu),
            network=baselines.network,
            whitening=whitening,
            images=images,
            metrics=selection.test_metrics,
        )
    ]
