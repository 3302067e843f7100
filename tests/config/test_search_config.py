"""The search file: how it is read, all mistakes of a file at once, and the engine that it names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.small_search import draw_folder

from search.config.recipes import read_search
from search.config.search_config import parse_config
from search.config.sections import ResourcesSection
from search.config.yaml_file import apply_settings, parse_yaml
from search.engines.base import make_engine
from search.engines.in_process import InProcess
from search.plan.make_plan import make_plan
from search.tables import engine_name
from trainables.errors import InvalidInput, suggestion
from trainables.losses import loss_row

SearchFile = Callable[..., dict[str, Any]]


def sentences(content: dict[str, Any], runs: Path | None = None) -> list[str]:
    """Return the mistakes of a search file, in its form and beyond."""
    with pytest.raises(InvalidInput) as caught:  # noqa: PT012, one of the two refuses
        config = parse_config(content)
        make_plan(config, runs or Path("/nonexistent-runs"))
    return list(caught.value.sentences)


def test_the_example_of_equal_budgets_searches_the_same_of_every_training(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "examples" / "equal_budgets.yaml"
    content = read_search(file, [f"dataset.root={draw_folder(tmp_path / 'images', classes=32)}"])
    plan = make_plan(parse_config(content), tmp_path / "runs")
    assert len(plan.spaces) == 14
    for loss, space in plan.spaces.items():
        assert "training.lr" in space.searched
        assert ("training.proxy_lr" in space.searched) == (loss_row(loss).proxy_lr is not None)


def test_settings_reach_into_sections() -> None:
    assert parse_yaml("lr: 1e-3", "text") == {"lr": 0.001}, "a number without a point"
    content = apply_settings({"search": {"trials": 3}}, ["search.trials=5", "training.lr=1e-2", "losses=[mpa]"])
    assert content == {"search": {"trials": 5}, "training": {"lr": 0.01}, "losses": ["mpa"]}


def test_a_missing_key_beside_a_wrong_one_is_said_once() -> None:
    assert sentences({"name": "x", "dataset": None}) == [
        "dataset: must be keys and values; it is None.",
        "losses: missing; this key is required.",
    ]
    assert sentences({}) == [f"{key}: missing; this key is required." for key in ("name", "dataset", "losses")]


def test_more_gpus_than_this_machine_has_are_refused(search_file: SearchFile) -> None:
    found = sentences(search_file(resources={"gpus_per_trial": 1}))
    assert any("resources.gpus_per_trial is 1 and this machine has" in sentence for sentence in found)


def test_a_hint_names_all_that_fit_equally() -> None:
    assert suggestion("k", ["a.k", "b.k", "c"]) == " (did you mean a.k or b.k?)"
    assert suggestion("x", ["a", "b"]) == ""
    for name in ("pmp", "pn", "pnpp", "npp"):  # one letter or the order differs
        assert suggestion(name, ["pnp", "uni"]) == " (did you mean pnp?)"
    assert suggestion("nix", ["pnp", "uni"]) == ""


# The engine, by ``resources.engine``.


@pytest.mark.parametrize(
    ("address", "gpus", "devices", "name"),
    [
        ("", 0, (), "local"), ("10.0.0.1:6379", 0, (), "ray"), ("", 0.5, (), "ray"),
        ("", 0, ("nvidiactl", "nvidia0"), "ray"), ("", 0, ("nvidiactl",), "local"),
    ],
)  # fmt: skip
def test_auto_is_ray_wherever_there_is_a_cluster_or_a_gpu(
    address: str, gpus: float, devices: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    for device in devices:
        (tmp_path / device).touch()
    assert engine_name("auto", gpus, tmp_path) == name
    assert engine_name("in_process", gpus) == "in_process"


def test_an_engine_may_be_named_by_its_import_path() -> None:
    path = "search.engines.in_process:InProcess"
    assert isinstance(make_engine(ResourcesSection(engine=path)), InProcess)
    with pytest.raises(InvalidInput, match=r"must be a class that derives from holdout\.parts\.Engine"):
        make_engine(ResourcesSection(engine="search.engines.base:Queue"))
