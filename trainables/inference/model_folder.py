"""A model on disk: its weights, its description and a card for people. Nothing here needs torch."""

import hashlib

from trainables.files.storage import AnyPath
from trainables.files.whole import write_json, write_text, write_whole
from trainables.inference.embedder_spec import EmbedderSpec

WEIGHTS, DESCRIPTION, CARD = "model.safetensors", "model.json", "README.md"


def write_model(folder: AnyPath, weights: bytes, spec: EmbedderSpec, card: str) -> None:
    """Write a model into ``folder``: ``weights`` is the content of a file of its network's tensors.

    The description comes last: where it is, all is.
    """
    write_whole(folder / WEIGHTS, lambda file: file.write(weights))
    write_text(folder / CARD, card)
    write_json(folder / DESCRIPTION, {**spec.to_json(), "weights_sha256": hashlib.sha256(weights).hexdigest()})
