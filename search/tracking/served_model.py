"""A Holdout model for MLflow's loading and serving. This file is copied into the model, next to `trainables`."""

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
    """Load the model folder; called by MLflow. Code in the artifact runs already, so the network's is trusted too."""
    sys.path.insert(0, str(Path(__file__).with_name("trainables.zip")))
    from trainables.inference.embedder import load_model

    return ServedModel(load_model(path, trust_code=True))


class ServedModel:
    """A model with MLflow's interface: images or features in, embeddings out."""

    def __init__(self, embedder: "Embedder") -> None:
        self.embedder = embedder

    def predict(self, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        """Compute the ``embedding`` of each row's ``image``, float32 of length 1.

        Args:
            model_input: the column ``image`` contains encoded images, as bytes or in base64, or pixels: an array, uint8
                [H, W, 3] or grey [H, W], or the same as nested lists. A model of features has a column ``features``, of
                lists of numbers.
            params: ignored; required by MLflow.

        Raises:
            MlflowException: some images cannot be read; the message names all of them. MLflow's server responds with
                this message, and with a traceback to other errors.
        """
        from trainables.common.errors import InvalidInput

        try:
            if self.embedder.network.on_vectors:
                embeddings_ND = self.embedder.embed([*model_input["features"]])
            else:
                embeddings_ND = self.embedder.embed([_image(given) for given in model_input["image"]])
        except InvalidInput as error:
            raise MlflowException(str(error), error_code=INVALID_PARAMETER_VALUE) from None
        return pd.DataFrame({"embedding": list(embeddings_ND)})


def _image(given: Any) -> Any:
    """Convert ``given`` for the embedder, which reports images that it cannot read."""
    if isinstance(given, bytes | np.ndarray):
        return given
    if isinstance(given, str):
        try:
            return base64.b64decode(given)
        except ValueError:
            return b""  # not an image
    pixels = np.array(given, dtype=object)
    try:
        found = pixels.astype(np.uint8)
    except (OverflowError, TypeError, ValueError):
        return pixels
    return found if (found == pixels).all() else pixels
