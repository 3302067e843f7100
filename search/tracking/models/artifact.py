"""A model's folder as MLflow keeps it: with a signature, an example and the code that loads it, and never a pickle."""

import io
import json
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from trainables.inference.model_folder import DESCRIPTION

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel

FOLDER = "model"
"""What the model's folder is called in the artifact's ``data``."""
REQUIRED = ("numpy", "pillow", "safetensors", "torch", "torchvision")
SIDE = 64
"""The example's, in pixels."""


def log_artifact(client: "MlflowClient", model: "LoggedModel", folder: Path) -> None:
    """Copy the model in ``folder`` to where MLflow keeps ``model``, as what its own tools load and serve.

    Torch is not imported: the signature is known, and the example is drawn, since no image of a data set may be given
    away here.
    """
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.pyfunc import save_model
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import AnyType, Array

    # Not `binary`, which decodes base64 by itself, but refuses pixels over HTTP.
    images = Schema([ColSpec(AnyType(), "image")])
    embeddings = Schema([ColSpec(Array(DataType.float), "embedding")])
    with TemporaryDirectory() as place:
        (Path(place) / FOLDER).symlink_to(folder.resolve())
        artifact = Path(place) / "artifact"
        save_model(
            artifact,
            mlflow_model=Model(
                artifact_path=model.artifact_location, model_id=model.model_id, run_id=model.source_run_id
            ),
            loader_module="served_model",
            data_path=str(Path(place) / FOLDER),
            code_paths=[str(_zipped_code(Path(place))), str(Path(__file__).with_name("served_model.py"))],
            pip_requirements=_requirements(folder),
            signature=ModelSignature(images, embeddings),
            input_example=pd.DataFrame({"image": [_drawn_image()]}),
        )
        client.log_model_artifacts(model.model_id, str(artifact))


def _zipped_code(folder: Path) -> Path:
    """The package ``trainables`` in one file below ``folder``: a server takes a request for each file, and a password.

    The same code makes the same file.
    """
    package = Path(str(files("trainables")))
    path = folder / "trainables.zip"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for module in sorted(package.rglob("*.py")):
            archive.writestr(ZipInfo(str(module.relative_to(package.parent))), module.read_bytes(), ZIP_DEFLATED)
    return path


def _requirements(folder: Path) -> list[str]:
    """What loading the model needs, in the versions that are here, without what a build adds, as in ``2.11.0+cpu``."""
    backbone = json.loads((folder / DESCRIPTION).read_text())["model"]["backbone"]
    names = (*REQUIRED, "timm") if backbone.startswith("timm:") else REQUIRED
    return [f"{name}=={version(name).partition('+')[0]}" for name in names]


def _drawn_image() -> bytes:
    """A slope of grey, as PNG."""
    from PIL import Image

    content = io.BytesIO()
    Image.linear_gradient("L").resize((SIDE, SIDE)).save(content, "PNG")
    return content.getvalue()
