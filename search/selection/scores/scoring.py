"""What is to be scored: a trained model, and the images and metrics."""

from dataclasses import dataclass

from trainables.data.store.spec import StoreSpec
from trainables.spec import TrialSpec


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """A model (``checkpoint``, trained as ``spec`` says), the images, the metrics, and a file for per-image results.

    Where classes validate among each other, ``gallery`` says how many at once: the objective is measured in galleries
    of that size too. None where they validate among training images as well.

    ``seed`` is that of the final training, which the models of its ``fold``s share (None without folds).
    """

    loss: str
    configuration: int
    seed: int
    fold: int | None
    spec: TrialSpec
    checkpoint: str
    images: StoreSpec
    metrics: tuple[str, ...]
    gallery: int | None
    per_image: str
