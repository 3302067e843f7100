"""A Holdout model as MLflow loads and serves it. This file is copied into the model, next to `trainables`."""

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

if TYPE_CHECKING:
    from trainables.inference.embedder import Embedder


def _load_pyfunc(path: str) -> "ServedModel":
    """What MLflow calls with the model's folder. The code beside it runs already, so its network's is trusted too."""
    sys.path.insert(0, str(Path(__file__).with_name("trainables.zip")))
    from trainables.inference.embedder import load_model

    return ServedModel(load_model(path, trust_code=True))


class ServedModel:
    """Images in, embeddings out, as MLflow asks."""

    def __init__(self, embedder: "Embedder") -> None:
        self.embedder = embedder

    def predict(self, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        """The ``embedding`` of each row's ``image``, of length 1, as float32.

        Args:
            model_input: in the column ``image`` each is encoded, as bytes or in base64, or its pixels: an array, uint8
                [H, W, 3] or grey [H, W], or the same as nested lists.
            params: nothing of this model's; MLflow gives it.

        Raises:
            MlflowException: images that cannot be read, all of them. MLflow's server answers with its sentence, and to
                other errors with a traceback.
        """
        from trainables.mistakes import Mistakes

        try:
            embeddings_ND = self.embedder.embed([_image(given) for given in model_input["image"]])
        except Mistakes as error:
            raise MlflowException(str(error), error_code=INVALID_PARAMETER_VALUE) from None
        return pd.DataFrame({"embedding": list(embeddings_ND)})


def _image(given: Any) -> Any:
    """``given`` as the embedder takes it, which names what it cannot read."""
    if isinstance(given, bytes | np.ndarray):
        return given
    if isinstance(given, str):
        try:
            return base64.b64decode(given)
        except ValueError:
            return b""  # which is no image
    pixels = np.array(given, dtype=object)
    try:
        found = pixels.astype(np.uint8)
    except (OverflowError, TypeError, ValueError):
        return pixels
    return found if (found == pixels).all() else pixels
