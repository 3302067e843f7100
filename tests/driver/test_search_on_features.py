"""A search on the features of a frozen backbone, from its file to the model that is handed out."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.kinds import Finished

import holdout
from search.selection.retrieval_file import FOLDER, RetrievalFile
from trainables.inference.model_files import FROZEN


def test_the_handed_out_model_embeds_images_as_the_test_did(kinds: Callable[[str], Finished]) -> None:
    search = kinds("frozen backbone")
    model = holdout.load(search.folder / "models/proxy_anchor")
    assert FROZEN in model.spec.origin
    opening = search.folder / "test" / search.opening["id"]
    name = f"{model.spec.origin['study']}-{model.spec.origin['trial']}.npz"
    kept = RetrievalFile.read(opening / FOLDER / name)
    with np.load(opening / name) as file:
        keys = file["keys"]
    root = Path(search.content["dataset"]["root"])
    found = model.embed([root / keys[row] for row in kept.sample_S])
    cosines = (found * kept.embeddings_SD).sum(axis=1) / np.linalg.norm(kept.embeddings_SD.astype(np.float32), axis=1)
    assert cosines.min() > 0.999


def test_a_checkpoint_alone_is_refused(kinds: Callable[[str], Finished]) -> None:
    checkpoint = next((kinds("frozen backbone").folder / "trials").rglob("best.safetensors"))
    with pytest.raises(holdout.InvalidInput, match="holds only the layers behind a frozen backbone"):
        holdout.load(checkpoint)
