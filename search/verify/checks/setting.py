"""What a search rests on: the split that follows from its file, and the images."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from search.plan.plan import Plan
from search.verify.check import Check, as_json, check, differing
from trainables.data.store.spec import StoreSpec


def check_split(plan: Plan) -> Iterator[Check]:
    """The stored split is the one that its rule makes of the data set's classes, and of what their images are."""
    if not plan.folder.split.exists():
        yield Check("split.json", f"split.json: nothing is stored, and the split is {plan.split.digest[:12]}.")
        return
    stored = json.loads(plan.folder.split.read_text())
    yield check(
        f"split.json: the split {plan.split.digest[:12]}, from its rule and from the images of the training half",
        differing("split.json", stored, as_json(plan.split.to_json())),
    )


def with_images(plan: Plan) -> Plan:
    """``plan`` with the digest of the training half's images in its split."""
    from trainables.data.store.contents import read_contents
    from trainables.data.store.image_digests import digests_by_class, named_digest

    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as cache:
        found = named_digest(digests_by_class(read_contents(decoded_anew(plan.images, cache))))
    return replace(plan, split=replace(plan.split, images=found))


def decoded_anew(images: StoreSpec, folder: str) -> Path:
    """A store of ``images`` below ``folder``: what is in the cache may be of others."""
    return replace(images, cache=folder).make()
