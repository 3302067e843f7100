"""What a search rests on: its file, the split that follows from it, and the images."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace

from search.plan.plan import Plan
from search.plan.search import IMAGES
from search.study.names import Stage
from search.verify.check import Check, as_json, check, differing
from search.verify.records import Records
from trainables.data.store.digest import content_digest
from trainables.data.store.spec import StoreSpec


def check_split(plan: Plan) -> Iterator[Check]:
    """The stored split is the one that its rule makes of the data set's classes."""
    if not plan.folder.split.exists():
        yield Check("split.json", f"split.json: nothing is stored, and the split is {plan.split.digest[:12]}.")
        return
    stored = json.loads(plan.folder.split.read_text())
    yield check(
        f"split.json: the split {plan.split.digest[:12]}, from its rule",
        differing("split.json", stored, as_json(plan.split.to_json())),
    )


def check_images(records: Records) -> Iterator[Check]:
    """The images of the training half are those that were trained on."""
    stored = records.attributes(records.plan.config.loss_names[0], Stage.SEARCH).get(IMAGES)
    if stored is None:
        yield Check("the images of the training half", is_there=False)
        return
    images = records.plan.images
    yield check(
        f"the images of the {len(images.class_names)} classes of the training half",
        differing("The digest of the training half's images", stored, images_digest(images)),
    )


def images_digest(images: StoreSpec) -> str:
    """The digest of images, all of them decoded anew: what is in the cache may be of others."""
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as cache:
        return content_digest(replace(images, cache=cache).make())
