"""The choice of an engine by ``resources.engine``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from search.config.search_config import parse_config
from search.config.sections import ResourcesSection
from search.engines.base import make_engine
from search.engines.in_process import InProcess
from search.tables import engine_name
from trainables.errors import InvalidInput


@pytest.mark.parametrize(
    ("address", "gpus", "devices", "name"),
    [
        ("", 0, (), "local"),
        ("10.0.0.1:6379", 0, (), "ray"),
        ("", 0.5, (), "ray"),
        ("", 0, ("nvidiactl", "nvidia0"), "ray"),
        ("", 0, ("nvidiactl",), "local"),
    ],
)
def test_auto_is_ray_wherever_there_is_a_cluster_or_a_gpu(
    address: str, gpus: float, devices: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    for device in devices:
        (tmp_path / device).touch()
    assert engine_name("auto", gpus, tmp_path) == name
    assert engine_name("in_process", gpus) == "in_process"


def test_an_unknown_engine_is_refused(search_file: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(InvalidInput, match=r"resources.engine: must be one of auto, ray, .*did you mean local"):
        parse_config(search_file(resources={"engine": "locl"}))


def test_an_engine_may_be_named_by_its_import_path() -> None:
    path = "search.engines.in_process:InProcess"
    assert isinstance(make_engine(ResourcesSection(engine=path)), InProcess)
    with pytest.raises(InvalidInput, match=r"must be a class that derives from holdout\.parts\.Engine"):
        make_engine(ResourcesSection(engine="search.engines.base:Queue"))
