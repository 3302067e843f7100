"""A briefly trained model, as a checkpoint and as a folder."""

from dataclasses import dataclass, replace
from pathlib import Path

from support.small_training import drawn_images, small_spec

from trainables.data.store.store_spec import StoreSpec
from trainables.inference.model_files import EmbedderSpec, network_file, write_model
from trainables.training.train import train


@dataclass(frozen=True, kw_only=True)
class SmallModel:
    """The paths of a model, and of the 60 images that it was trained on, below ``images``."""

    folder: Path
    checkpoint: Path
    images: Path
    store: StoreSpec


def small_model(path: Path, *, seed: int = 7) -> SmallModel:
    """Train a model below ``path`` for one epoch; its weights depend on ``seed``."""
    store = drawn_images(path)
    spec = replace(small_spec(store, path, epochs=1), seed=seed)
    *_, record = train(spec)
    checkpoint = Path(spec.directory) / str(record["checkpoint"])
    weights, description = network_file(checkpoint)
    write_model(path / "model", weights, EmbedderSpec.from_json(description, checkpoint), "# A model\n")
    return SmallModel(folder=path / "model", checkpoint=checkpoint, images=path / "images", store=store)
