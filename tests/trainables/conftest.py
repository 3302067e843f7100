"""Fixtures that several folders of trainings and models share."""

import pytest
from support.small_model import SmallModel, small_model

import holdout
from trainables.inference.embedder import Embedder


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> SmallModel:
    """Return a model that was trained for one epoch; not to be changed."""
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def model(made: SmallModel) -> Embedder:
    """Return that model, loaded."""
    return holdout.load(made.folder, device="cpu")
