"""The test classes' seal: their store can only be asked for with a frozen selection and an opening in the ledger.

The seal is on pixels. The files may be looked at from outside before, since one that is damaged would else be found
after all trainings: no image is decoded, and nothing that is seen goes anywhere but into a sentence.
"""

from dataclasses import dataclass

from search.selection.openings.opening import Opening
from search.selection.selection import Selection
from trainables.data.dataset import Dataset
from trainables.data.split import ClassSplit
from trainables.data.store.spec import StoreSpec

MEND = "Mend them before the test: it refuses images that cannot be decoded, and nothing before it reads them."


@dataclass(frozen=True, kw_only=True)
class SealedTest:
    """The held-out classes of a search."""

    dataset: Dataset
    split: ClassSplit
    short_side: int
    cache: str

    def damage(self, seconds: float) -> str | None:
        """The sentence on those test images that look damaged from outside, looked for in so many seconds."""
        from trainables.data.look import look_at  # imports numpy and Pillow

        classes = self.dataset.classes()
        keys = [key for name in self.split.test for key in classes[name]]
        look = look_at(self.dataset, keys, seconds=seconds)
        sentence = look.sentence("test classes")
        return f"{sentence} {MEND}" if sentence and look.damaged else sentence

    def images(self, selection: Selection, opening: Opening) -> StoreSpec:
        """The test images, for a selection that was frozen for this split and opened for this selection."""
        assert selection.split_digest == self.split.digest, "the selection was made on another split"
        assert selection.digest in opening.selections.values(), "the opening is another selection's"
        assert opening.test_digest == self.split.test_digest, "the opening is another test set's"
        return StoreSpec(
            dataset=self.dataset, class_names=self.split.test, short_side=self.short_side, cache=self.cache
        )
