"""The search file: how it is read, mistakes, the engine that it names, and settings of a loss's own training."""

import re
import runpy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from sqlalchemy import make_url
from support.commands import ROOT, holdout_here, json_of
from support.driving import made_trial
from support.small_search import SearchFile, draw_folder

from search.config.keys import ESSENTIAL, SECTION, Key, commented, keys_of
from search.config.recipes import read_search
from search.config.search_config import SearchConfig, parse_config, parse_stored, validate_config
from search.config.sections import ResourcesSection
from search.config.yaml_file import apply_settings, parse_yaml
from search.driver.make_plan import make_plan
from search.engines.base import InProcess, make_engine
from search.records.plan import Plan, training_of
from search.stages import Stage
from search.tables import engine_name
from trainables.common.errors import InvalidInput
from trainables.losses import loss_row
from trainables.training.spec import TrialSpec
from trainables.training.training_config import Schedule

BASE = {"name": "keys", "dataset": {"name": "glyphs"}, "losses": ["proxy_anchor", "mpa"]}


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
    path = "search.engines.base:InProcess"
    assert isinstance(make_engine(ResourcesSection(engine=path)), InProcess)
    with pytest.raises(InvalidInput, match=r"must be a class that derives from holdout\.parts\.Engine"):
        make_engine(ResourcesSection(engine="search.engines.base:Queue"))


# A loss may have training settings of its own.

LOSSES = ["mpa", "pnp", "multi_similarity"]
OWN = {"mpa": {"sampler": "random", "proxy_lr": 6e-2, "schedule": {"step": 2}}, "pnp": {"images_per_class": 4}}


@pytest.fixture
def plan(search_file: SearchFile, tmp_path: Path) -> Callable[..., Plan]:
    return lambda **changes: make_plan(parse_config(search_file(losses=LOSSES, **changes)), tmp_path / "runs")


def specs(made: Plan, params: Mapping[str, Any] | None = None) -> dict[str, TrialSpec]:
    trials = {loss: made_trial(space, {**space.default, **(params or {})}) for loss, space in made.spaces.items()}
    return {loss: training_of(made, loss, Stage.SEARCH, trial) for loss, trial in trials.items()}


def test_proposals_stand_over_a_loss_s_own_settings_and_these_over_the_shared_ones(plan: Callable[..., Plan]) -> None:
    made = plan(training_by_loss=OWN)
    shared = made.config.training
    found = {loss: spec.training for loss, spec in specs(made).items()}
    schedule = Schedule(step=2, gamma=shared.schedule.gamma)
    assert found["mpa"] == replace(shared, sampler="random", proxy_lr=6e-2, schedule=schedule)
    assert found["pnp"] == replace(shared, images_per_class=4)
    assert found["multi_similarity"] == shared
    made = plan(training_by_loss={"mpa": {"lr": 2e-3}}, space={"training": {"lr": [2e-3, 5e-3]}})
    assert made.spaces["mpa"].default["training.lr"] == 2e-3
    assert {spec.training.lr for spec in specs(made, {"training.lr": 5e-3}).values()} == {5e-3}


def test_a_loss_s_space_may_hold_settings_of_its_training(plan: Callable[..., Plan]) -> None:
    wish = {"low": 1e-5, "high": 1e-4, "step": 1e-5}
    made = plan(space={"mpa": {"scale": 8, "training": {"proxy_lr": wish}}, "training": {"lr": [1e-3, 1e-2]}})
    assert list(made.spaces["mpa"].searched)[-2:] == ["training.lr", "training.proxy_lr"]
    assert made.spaces["mpa"].parameters["training.proxy_lr"].grid == tuple(round(n * 1e-5, 12) for n in range(1, 11))
    assert "training.proxy_lr" not in made.spaces["multi_similarity"].parameters


def test_losses_that_a_setting_leaves_out_take_their_own_settings_with_them(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text(yaml.safe_dump({"losses": LOSSES, "training_by_loss": OWN, "space": {"pnp": {"alpha": 2}}}))
    fewer = read_search(file, ["losses=[mpa]", "space.mpaa.tau=0.1"])
    assert fewer["training_by_loss"] == {"mpa": OWN["mpa"]}
    assert fewer["space"] == {"mpaa": {"tau": 0.1}}, "a mistake stays one"
    assert read_search(file)["training_by_loss"] == OWN


# The size before the crop that a network of timm brings with it.


def search(backbone: str, **training: Any) -> SearchConfig:
    return parse_config({**BASE, "model": {"backbone": backbone, "embedding_dim": 8}, "training": training})


def test_a_size_left_null_is_timms_and_another_is_kept() -> None:
    from timm.data import create_transform, resolve_data_config

    torch.manual_seed(5)
    for side in (64, 112):
        settings = resolve_data_config(pretrained_cfg={"input_size": (3, side, side), "crop_pct": 0.95})
        resize = create_transform(**settings).transforms[0]
        config = search("timm:test_resnet", image_size=side)
        frame = config.training.frame
        assert (config.training.resize_size, frame.side, frame.short_side) == (resize.size, side, resize.size)
        assert parse_stored(config.model_dump(mode="json"), Path("search.yaml")) == config
    expected = torch.rand(3, generator=torch.Generator().manual_seed(5))
    assert torch.equal(torch.rand(3), expected), "random numbers are left alone"
    assert search("timm:test_resnet", image_size=64, resize_size=70).training.resize_size == 70
    assert search("resnet18", image_size=64).training.resize_size is None
    assert search("timm:nothing", image_size=64).training.resize_size is None


# The reference of keys: complete, true to the classes, and the same wherever it is shown.

KEYS = list(keys_of(SearchConfig))
SETTABLE = [key for key in KEYS if key.type != SECTION]


def set_to(key: Key, text: str) -> tuple[str, ...]:
    """The mistakes in a file with ``key`` set to the YAML ``text``."""
    return validate_config(apply_settings(BASE, [f"{key.name}={text}"])).sentences


def test_every_key_of_a_resolved_file_is_described() -> None:
    def paths(content: Any, above: str = "") -> set[str]:
        if not isinstance(content, dict) or above.rstrip(".") in {"space", "training_by_loss", "search.constraints"}:
            return {above.rstrip(".")}
        return {path for key, value in content.items() for path in paths(value, f"{above}{key}.")}

    resolved = paths(parse_config(BASE).model_dump(mode="json"))
    assert resolved | {"dataset.file"} == {key.name for key in SETTABLE}
    for key in KEYS:
        assert re.fullmatch(r"[A-Z`].*\.", key.does), f"{key.name}: describe it in a docstring below its field"
        assert not re.search("Range:|Example:", key.does), f"{key.name}: the range, then the example, end the text"


RESNET = ["model.backbone=resnet50"]
PRETRAINED = [*RESNET, "model.weights=imagenet"]
BESIDE = {"model.weights": RESNET, "model.freeze": PRETRAINED}
"""What an example needs beside itself."""


def test_an_address_is_the_same_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    here = tmp_path / "50% of#it"
    here.mkdir()
    monkeypatch.chdir(here)
    for written, file in {
        "sqlite:///x.db": here / "x.db",
        "sqlite+pysqlite:///a/x.db": here / "a" / "x.db",
        "sqlite:///~/a/x.db": tmp_path / "home" / "a" / "x.db",
        "sqlite:////a/x.db": Path("/a/x.db"),
    }.items():
        config = parse_config(apply_settings(BASE, [f"tracking.uri={written}", "checkpoints.storage_path=~/kept"]))
        assert config.checkpoints.storage_path == str(tmp_path / "home" / "kept")
        assert config.tracking.uri is not None
        assert make_url(config.tracking.uri).database == str(file)
        monkeypatch.chdir(tmp_path)
        assert parse_config(config.model_dump(mode="json")).tracking == config.tracking
        monkeypatch.chdir(here)
    unchanged = "sqlite:///${FOLDER}/x.db", "http://127.0.0.1:1", "postgresql://u:${PASSWORD}@host/x"
    assert all(parse_config(apply_settings(BASE, [f"tracking.uri={uri}"])).tracking.uri == uri for uri in unchanged)


def test_every_example_is_accepted() -> None:
    for key in SETTABLE:
        if key.name in ("dataset.root", "dataset.file"):  # the class of a data set refuses files that do not exist
            continue
        in_file = parse_yaml(key.in_file, "the example")
        assert in_file == apply_settings({}, [f"{key.name}={key.example}"])
        if key.name == "dataset.name":
            continue
        beside = BESIDE.get(key.name, [])
        base = {name: value for name, value in BASE.items() if key.name != "trainable" or name != "losses"}
        assert not validate_config(apply_settings(base, [*beside, f"{key.name}={key.example}"])).sentences


def test_every_default_is_what_a_file_without_the_key_gets() -> None:
    for key in SETTABLE:
        resolved: Any = parse_config(BASE).model_dump(mode="json")
        for name in key.name.split("."):
            resolved = resolved.get(name) if isinstance(resolved, dict) else resolved
        if key.default is not None:
            assert parse_yaml(key.default, "the default") == resolved


def test_every_bound_is_where_the_class_refuses() -> None:
    for key in SETTABLE:
        step = 1.0 if key.type.startswith(("whole", "list")) else 1e-9
        for kind, text in re.findall(r"(at least|more than|at most|less than) ([\d.]+)", key.range):
            bound, inwards = float(text), 1 if kind in ("at least", "more than") else -1
            allowed, refused = (
                (bound, bound - inwards * step) if kind.startswith("at ") else (bound + inwards * step, bound)
            )
            shown = [f"{value:.0f}" if step == 1 else f"{value:.12f}" for value in (allowed, refused)]
            shown = [f"[{text}]" for text in shown] if key.type == "list" else shown
            assert not any(f"it is {float(shown[0]):g}" in said.replace(".0.", ".") for said in set_to(key, shown[0]))
            assert set_to(key, shown[1]), f"{key.name} is {shown[1]}"


def test_every_choice_is_known_and_no_other() -> None:
    for key in SETTABLE:
        if not key.range.startswith("one of "):
            continue
        for choice in key.range.removeprefix("one of ").split(", "):
            if choice not in ("list", "a list", "keys and values"):
                unknown = [said for said in set_to(key, choice) if "must be one of" in said or "is not known" in said]
                assert not unknown
        assert set_to(key, "nonesuch")


def test_the_page_is_that_of_the_classes() -> None:
    module = runpy.run_path(str(ROOT / "docs" / "make_keys.py"))
    assert (ROOT / "docs" / "keys.md").read_text() == module["keys_page"](), "run `make keys`"


def test_a_stored_file_has_comments_and_the_same_content() -> None:
    config = parse_config(apply_settings(BASE, ["space={mpa: {scale: [8, 16]}}", "training_by_loss={mpa: {lr: 1e-3}}"]))
    text = config.to_yaml()
    assert yaml.safe_load(text) == config.model_dump(mode="json")
    lines = text.splitlines()
    assert lines[lines.index("  pruner: asha") - 1] == "  # The rule that ends bad trials early."
    assert max(map(len, lines)) <= 120
    content = {**config.model_dump(mode="json"), "name": 'a: "b" # c\n\n' + "long " * 60}
    assert yaml.safe_load(commented(SearchConfig, content)) == content, "text of every kind is kept"


def test_the_command_prints_and_refuses() -> None:
    shown = holdout_here("keys").stdout
    assert len(shown.splitlines()) <= 30
    assert all(f"\n{name}  " in shown for name in ESSENTIAL)
    assert [key["name"] for key in json_of("keys", "--all")] == [key.name for key in KEYS]
    said = holdout_here("keys", "pruner").stdout
    assert "one of asha, hyperband, none" in said
    assert "search: {pruner: asha}" in said
    holdout_here("keys", "trails", code=2)
