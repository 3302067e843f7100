"""The reference of keys: complete, true to the classes, and the same wherever it is shown."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import holdout_here

from search.config.keys import ESSENTIAL, SECTION, Key, commented, keys_of, matching
from search.config.search_config import SearchConfig, parse_config, validate_config
from search.config.yaml_file import apply_settings, parse_yaml
from trainables.errors import InvalidInput

ROOT = Path(__file__).parent.parent.parent
KEYS = list(keys_of(SearchConfig))
SETTABLE = [key for key in KEYS if key.type != SECTION]
BASE = {"name": "keys", "dataset": {"name": "glyphs"}, "losses": ["proxy_anchor", "mpa"]}


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
FRONT = ["search.pruner=none", "search.objectives=[map_at_r, -embed_ms]"]
BESIDE = {"search.objectives": FRONT[:1], "model.weights": RESNET, "model.freeze": PRETRAINED}
"""What an example needs beside itself."""


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


def test_patterns_find_names_then_descriptions() -> None:
    def found(pattern: str) -> list[str]:
        return [key.name for key in matching(KEYS, pattern)]

    assert found("search.epochs") == ["search.epochs"]
    assert found("LR") == ["training.lr", "training.head_lr", "training.proxy_lr"]
    assert found("final.*") == ["final.seeds", "final.train_on", "final.test", "final.within"]
    assert found("space.mpa.scale") == ["space"]
    assert found("bfloat16") == ["training.precision"]
    with pytest.raises(InvalidInput, match=r"did you mean search.trials\?"):
        found("trails")


def test_the_command_prints_and_refuses() -> None:
    shown = holdout_here("keys").stdout
    assert len(shown.splitlines()) <= 30
    assert all(f"\n{name}  " in shown for name in ESSENTIAL)
    assert f"all {sum(key.type != SECTION for key in KEYS)}." in shown
    listed = json.loads(holdout_here("keys", "--all", "--json").stdout)
    assert [key["name"] for key in listed] == [key.name for key in KEYS]
    said = holdout_here("keys", "pruner")
    assert "one of asha, hyperband, median, none" in said.stdout
    assert "search: {pruner: asha}" in said.stdout
    holdout_here("keys", "trails", code=2)
