"""Unknown names get a suggestion, also from another section of the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from search.config.campaign import read_config
from search.config.recipes import read_file, read_search
from search.config.search_config import parse_config
from search.config.yaml_file import apply_settings
from trainables.errors import InvalidInput, suggestion

SearchFile = Callable[..., dict[str, Any]]


def refused(read: Callable[[], object]) -> str:
    """Return the sentences of a refused file."""
    with pytest.raises(InvalidInput) as caught:
        read()
    return str(caught.value)


KEYS = [
    ("trials", "search.trials"),
    ("epochs", "training.epochs or search.epochs"),
    ("learning_rate", "training.lr"),
    ("batch_size", "training.batch_size"),
    ("seeds", "selection.seeds or final.seeds"),
    ("search.trails", "search.trials"),
    ("search.batch_size", "training.batch_size"),
    ("training.gamma", "training.schedule.gamma"),
    ("training.Batch-Size", "training.batch_size"),
    ("training.schedule.steps", "training.schedule.step"),
    ("model.name", "model.backbone"),
]


@pytest.mark.parametrize(("key", "meant"), KEYS, ids=[key for key, _ in KEYS])
def test_an_unknown_key_is_looked_for_in_the_whole_file(search_file: SearchFile, key: str, meant: str) -> None:
    """``--set`` is the shortest way to write an entry."""
    said = refused(lambda: parse_config(apply_settings(search_file(), [f"{key}=1"])))
    assert (
        f"{key}: no such {'key' if '.' in key else 'section'} (did you mean {meant}?); correct it, or remove it."
        == said
    )


@pytest.mark.parametrize("key", ["zebra", "training.zebra"])
def test_nothing_is_guessed_where_nothing_is_like_it(search_file: SearchFile, key: str) -> None:
    said = refused(lambda: parse_config(apply_settings(search_file(), [f"{key}=1"])))
    assert said.endswith(f"no such {'key' if '.' in key else 'section'}; remove it.")


CAMPAIGN: dict[str, Any] = {
    "name": "many",
    "study": "several",
    "base": {},
    "vary": {"size": {"small": {}}},
    "table": {"rows": ["loss"]},
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"final": {"seeds": 5}}, "final.seeds: no such key (did you mean base.final.seeds?)"),
        ({"trials": 3}, "trials: no such section (did you mean base.search.trials?)"),
        ({"recipes": "quickstart"}, "recipes: no such section (did you mean recipe?)"),
    ],
)
def test_a_search_s_key_in_a_campaign_belongs_into_its_base(change: dict[str, Any], said: str) -> None:
    assert said in refused(lambda: read_config({**CAMPAIGN, **change}))


def test_an_unknown_recipe_or_file_is_answered_with_the_nearest(tmp_path: Path) -> None:
    assert "(did you mean quickstart?)" in refused(lambda: read_search(Path("quickstrt")))
    assert "(did you mean mpa-cub200?)" in refused(lambda: read_search(Path("mpa_cub200")))
    (tmp_path / "birds.yaml").write_text("name: birds")
    said = refused(lambda: read_search(tmp_path / "bird.yaml"))
    assert f"(did you mean {tmp_path / 'birds.yaml'}?)" in said
    assert "did you mean" in refused(lambda: read_file(Path("mpa-loses")))


def test_a_hint_names_all_that_fit_equally() -> None:
    assert suggestion("k", ["a.k", "b.k", "c"]) == " (did you mean a.k or b.k?)"
    assert suggestion("x", ["a", "b"]) == ""


@pytest.mark.parametrize(
    ("name", "meant"), [("pmp", "pnp"), ("pn", "pnp"), ("pnpp", "pnp"), ("npp", "pnp"), ("nix", "")]
)
def test_a_short_name_differs_in_one_letter_or_the_order(name: str, meant: str) -> None:
    assert suggestion(name, ["pnp", "uni"]) == (f" (did you mean {meant}?)" if meant else "")
