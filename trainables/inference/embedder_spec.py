"""What has to be known of a trained network to embed images as its test did."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trainables.data.augmentation.augment import Frame
from trainables.files.whole import DAMAGED
from trainables.mistakes import Mistakes
from trainables.models.config import ModelConfig

FORMAT = 1
"""Changes with every change of the keys or of their meaning."""


@dataclass(frozen=True, kw_only=True)
class EmbedderSpec:
    """A network and its preprocessing.

    An image is decoded, scaled down to a short side of ``decoded_side`` pixels where it is larger (8 bits, bilinear,
    antialiased), cut as ``frame`` says, embedded by ``model`` in float32, ``batch_size`` images at once, and its
    embedding divided by its length. ``origin`` says what it was trained on and how, in JSON's types.
    """

    model: ModelConfig
    decoded_side: int
    frame: Frame
    batch_size: int
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """For ``model.json`` and the head of a checkpoint."""
        return {"format": FORMAT, **asdict(self), "normalised": True}

    @classmethod
    def from_json(cls, content: Any, path: object) -> "EmbedderSpec":
        """What ``path`` holds.

        Raises:
            Mistakes: it is of another format, or damaged.
        """
        found = content.get("format") if isinstance(content, Mapping) else None
        if found != FORMAT:
            raise Mistakes(
                f"{path} describes a model in the format {found!r}, and this version reads {FORMAT}; export the model "
                "again with this version, or load it with the one that wrote it."
            )
        try:
            return cls(
                model=ModelConfig(**content["model"]),
                decoded_side=int(content["decoded_side"]),
                frame=Frame(**content["frame"]),
                batch_size=int(content["batch_size"]),
                origin=content["origin"],
            )
        except DAMAGED as error:
            raise Mistakes(f"{path} is damaged ({type(error).__name__}: {error}); export the model again.") from error
