"""Stanford Online Products (Song et al. 2016): products sold on eBay; the authors' lists are the two halves.

The products are of twelve kinds (bicycles, chairs, …), the data set's superclasses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trainables.data.listing import listed
from trainables.data.sets.published import Classes, Halves, PublishedDataset, grouped
from trainables.mistakes import Mistakes

TRAIN, TEST = "Ebay_train.txt", "Ebay_test.txt"
COLUMNS = "image_id class_id super_class_id path"


@dataclass(frozen=True, kw_only=True)
class SOP(PublishedDataset):
    """Classes are named by their ``class_id``, in the order of the lists."""

    title: ClassVar[str] = "Stanford Online Products"
    summary: ClassVar[str] = "120,053 photographs of 22,634 products"
    publisher: ClassVar[str] = "https://cvgl.stanford.edu/projects/lifted_struct/"
    layout: ClassVar[str] = """\
Ebay_train.txt             image_id class_id super_class_id path
                           1 1 1 bicycle_final/111085122871_0.JPG
Ebay_test.txt              the same
bicycle_final/111085122871_0.JPG"""

    def _needed(self) -> tuple[str, ...]:
        return TRAIN, TEST

    def _published(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "training classes": (11_318,),
            "test classes": (11_316,),
            "training images": (59_551,),
            "test images": (60_502,),
        }

    def _listed(self) -> Halves:
        return self._half(TRAIN), self._half(TEST)

    def _half(self, name: str) -> Classes:
        return grouped((product, path) for _, product, _, path in self._rows(name, COLUMNS))

    def superclasses(self) -> dict[str, str]:
        """Product → its ``super_class_id``.

        Raises:
            Mistakes: as :meth:`classes`, or a product of two kinds.
        """
        kinds: dict[str, set[str]] = {}
        for name in (TRAIN, TEST):
            for _, product, kind, _ in self._rows(name, COLUMNS):
                kinds.setdefault(product, set()).add(kind)
        if several := [product for product, found in kinds.items() if len(found) > 1]:
            raise Mistakes(
                f"{len(several)} products in {str(self.root)!r} have more than one super_class_id: {listed(several)}. "
                "Restore the published lists."
            )
        return {product: min(kinds[product]) for product in self.classes()}
