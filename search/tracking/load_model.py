"""A model by its address, also by one of MLflow's."""

from typing import TYPE_CHECKING

from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    import torch

    from trainables.inference.embedder import Embedder

OF_MLFLOW = ("models:/", "runs:/")
"""MLflow's addresses; which of them are models of ours, the registry says."""


def load_model(address: str, *, device: "str | torch.device | None" = None, trust_code: bool = False) -> "Embedder":
    """The model at a path, a URL or an address of MLflow's; as :func:`trainables.inference.load_model.load_model`."""
    from trainables.inference import load_model as on_disk

    found = on_disk.load_model(_on_disk(address), device=device, trust_code=trust_code)
    if address.startswith(OF_MLFLOW):
        found.address = address  # what was fetched lies in a folder that another process does not have
    return found


def _on_disk(address: str) -> str:
    if not address.startswith(OF_MLFLOW):
        return address
    try:
        from search.tracking.registry import downloaded_model

        return str(downloaded_model(address))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mlflow":
            raise
        raise Mistakes(
            f"{address} is kept by MLflow, which is not installed here: install mlflow, or give the model's folder."
        ) from error
