"""What the training images of a search are, by their content, once they are decoded."""

from dataclasses import replace

from search.plan.plan import Plan
from search.plan.runs import RunFolder, stored_split
from search.selection.openings.ledger import Ledger
from trainables.files.whole import write_json
from trainables.mistakes import Mistakes


def with_training_images(plan: Plan) -> Plan:
    """``plan`` with the digest of its decoded training images in its split.

    Raises:
        Mistakes: they are not those that the search, or the one that it begins with, was trained on.
    """
    from trainables.data.store.image_digests import named_digest

    digest = named_digest(_by_class(plan))
    name, begun = plan.config.name, plan.split.images
    if origin := plan.config.search.origin:
        name, begun = origin, begun or stored_split(RunFolder(plan.folder.runs, origin)).images
    if begun not in (None, digest):
        raise Mistakes(
            f"The images of the training classes are not those that {name} began with, although their names are; put "
            "them back, or give the search a new name."
        )
    return replace(plan, split=replace(plan.split, images=digest))


def note_opened_images(plan: Plan) -> str | None:
    """Write down, for a search that begins, how many of its classes hold images of a test set that was opened.

    Gives the sentence; None where there is none. What others open later was not known to who chose these classes.
    """
    from trainables.data.store.image_digests import fingerprints

    opened = Ledger(plan.folder.openings).opened_among(fingerprints(_by_class(plan)))
    if opened is None:
        return None
    sentence = f"training on images of an opened test set: {opened}"
    write_json(plan.folder.trained_on_opened, {"told": sentence})
    return sentence


def _by_class(plan: Plan) -> dict[str, list[str]]:
    from trainables.data.store.contents import read_contents
    from trainables.data.store.image_digests import digests_by_class

    return digests_by_class(read_contents(plan.images.make()))
