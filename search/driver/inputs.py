"""The images and weights that a search starts from, and the networks that are scored without training."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from search.records import Opening, Selection, images_in, save_baselines
from search.records.plan import Plan
from search.records.records import Records
from search.stages import Stage
from trainables.common.errors import InvalidInput, listed
from trainables.common.files import json_digest, write_json
from trainables.data.store.contents import digests_by_class, read_contents
from trainables.data.store.store_spec import StoreSpec
from trainables.training.spec import UntrainedSpec, ValidatedUntrained

logger = logging.getLogger(__name__)

CHECK_S = 600
"""Most seconds that the background check of the test images may take."""


def with_training_images(plan: Plan) -> Plan:
    """Return ``plan`` with the digest of its training images; raise if the search did not begin with these."""
    digest = digest_of_images(plan.images.make())
    if plan.split.images not in (None, digest):
        raise InvalidInput(
            f"The training {plan.images.dataset.noun} differ from those that {plan.config.name} started with: some "
            "were added, removed or changed; restore them, or give the search a new name."
        )
    return replace(plan, split=replace(plan.split, images=digest))


def digest_of_images(store: Path) -> str:
    """Return the digest of the decoded training images in ``store``, by their classes."""
    return json_digest(digests_by_class(read_contents(store)))


def copies_among_classes(plan: Plan) -> str | None:
    """Return a sentence on training images whose pixels are in another class, too; None without any."""
    images, noun = read_contents(plan.images.make()), plan.images.dataset.noun
    classes = Counter(digest for digest, _ in {*zip(images.image_digests, images.labels_N.tolist(), strict=True)})
    keys = zip(images.image_keys, images.image_digests, strict=True)
    copies = [key for key, digest in keys if classes[digest] > 1]
    share = f"{len(copies)} of the {len(images.image_keys)} training and validation {noun} are in several classes"
    why = "one that trains and validates makes validation too high, and any other has two labels; remove them"
    return f"{share} ({listed(copies)}): {why}" if copies else None


def note_opened_images(plan: Plan) -> str | None:
    """Record and return a sentence on training images of a new search that are in a test set opened before; else None.

    Later openings could not have influenced the choice of its classes, so those that count are recorded, too.
    """
    ledger, training = Records(plan.folder, plan).ledger, images_in(plan.images.make())
    openings = [entry for entry in ledger.openings() if entry.images]
    sentence = ledger.opened_among_training(training, openings)
    if sentence:  # with their lines in the runs folder, a copy of it can be verified elsewhere
        ledger.catch_up(entry.id for entry, *_ in ledger.sharing(training, openings))
    write_json(plan.folder.trained_on_opened, {"warning": sentence, "openings": [entry.id for entry in openings]})
    return sentence


REPAIR = "Repair them before the test: it refuses what cannot be read, and no stage before it reads them."


def sealed_images(plan: Plan, selection: Selection, opening: Opening) -> StoreSpec:
    """Return the test images of ``plan``, for a ``selection`` of its split and the ``opening`` of that."""
    split = plan.split
    assert selection.split_digest == split.digest, "the selection is of another split"
    assert selection.digest in opening.selections.values(), "the opening is of another selection"
    assert opening.test_digest == split.test_digest, "the opening is of another test set"
    return replace(plan.images, class_names=split.test)


def check_sealed_images(plans: Sequence[Plan]) -> None:
    """Warn of damaged test images, by their headers and ends alone, while trials train instead of days later."""
    from trainables.data.images import inspect  # imports numpy and Pillow

    first = {(plan.config.dataset.source, plan.split.test): plan for plan in reversed(plans)}
    for (dataset, names), plan in reversed(first.items()):
        try:
            classes = dataset.classes()
            seen = inspect(dataset.damage, [key for name in names for key in classes[name]], seconds=CHECK_S)
            sentence = seen.sentence(f"{dataset.noun} of test classes")
            if sentence and seen.damaged:
                sentence = f"{sentence} {REPAIR}"
        except Exception as error:  # a user-defined data set may raise anything; training does not need this
            sentence = f"The test classes cannot be checked ({type(error).__name__}: {error})."
        if sentence:
            logger.warning("%s: %s", plan.config.name, sentence)


def check_weights(plans: Sequence[Plan]) -> None:
    """Raise if a search validated its baselines with other weights than its file has now."""
    pretrained = [plan for plan in plans if plan.config.model.weights]
    known = [(plan.config.model, found.network) for plan in pretrained if (found := Records(plan.folder).baselines)]
    if known:
        from trainables.training.inputs import described_backbone, of_backbone, raise_if_other  # imports torch

        described_backbone.cache_clear()  # a file may have been replaced since this process read it
        for model, network in known:
            raise_if_other(of_backbone(model), network)


def without_baselines(searches: Sequence[Records]) -> list[Records]:
    """Return the searches from pretrained weights whose baselines are not validated yet, and not chosen without."""
    pretrained = [search for search in searches if search.config.model.is_pretrained]
    return [each for each in pretrained if not (each.folder.baselines.exists() or each.is_done(Stage.SELECT))]


def validate_baselines(
    searches: Sequence[Records], validate_all: Callable[[Sequence[UntrainedSpec]], Sequence[ValidatedUntrained]]
) -> None:
    """Validate the baselines of ``searches`` with ``validate_all``, once for equal ones, and write their files."""
    unequal = list(dict.fromkeys(untrained_spec(search.plan) for search in searches))
    found = dict(zip(unequal, validate_all(unequal), strict=True))
    for search in searches:
        save_baselines(search.folder.baselines, search.folder.whitened, found[untrained_spec(search.plan)])


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
