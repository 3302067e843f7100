"""The test classes' seal: their store can only be asked for with a frozen selection and an opening in the ledger."""

from dataclasses import dataclass

from search.selection.openings.opening import Opening
from search.selection.selection import Selection
from trainables.data.dataset import Dataset
from trainables.data.split import ClassSplit
from trainables.data.store.spec import StoreSpec


@dataclass(frozen=True, kw_only=True)
class SealedTest:
    """The held-out classes of a search."""

    dataset: Dataset
    split: ClassSplit
    short_side: int
    cache: str

    def images(self, selection: Selection, opening: Opening) -> StoreSpec:
        """The test images, for a selection that was frozen for this split and opened for this selection."""
        assert selection.split_digest == self.split.digest, "the selection was made on another split"
        assert selection.digest in opening.selections.values(), "the opening is another selection's"
        assert opening.test_digest == self.split.test_digest, "the opening is another test set's"
        return StoreSpec(
            dataset=self.dataset, class_names=self.split.test, short_side=self.short_side, cache=self.cache
        )
