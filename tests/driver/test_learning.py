"""Searches that begin with what earlier ones chose: which choices, how many, and after a kill."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support.commands import holdout, holdout_here, plain, write_search
from support.finished_search import run_here

from search.config.search_config import parse_config
from search.driver.learning import in_space
from search.driver.stages import begin_studies
from search.plan.make_plan import make_plan
from search.plan.runs import RunFolder
from search.plan.search import open_search
from search.plan.stored import LEARNED_FROM
from search.report.results import stored_summary
from search.stages import Stage
from spaces.search_space import search_space
from spaces.space import Params
from trainables.mistakes import Mistakes
from trainables.training.config import TrainingConfig


def content(name: str, learn_from: Any = "none", *, classes: int = 16, **changes: Any) -> dict[str, Any]:
    """A small search of drawn signs, which differ from name to name."""
    search = {"trials": 8, "sampler": "random", "pruner": "none", "learn_from": learn_from, **changes.pop("search", {})}
    return {
        "name": name,
        "dataset": {"name": "glyphs", "num_classes": classes, "images_per_class": 6, "size": 20, "seed": len(name)},
        "training": {"epochs": 1, "batch_size": 10, "images_per_class": 5, "image_size": 16},
        "model": {"embedding_dim": 8},
        "losses": ["pnp", "triplet"],
        "space": {"pnp": {"variant": "Ds"}},
        "stages": ["search", "select"],
        "search": search,
        "selection": {"finalists": 3, "seeds": 1},
        **changes,
    }


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs folder with three chosen searches, of which ``larger`` trains on names of the others' test classes."""
    runs: Path = tmp_path_factory.mktemp("earlier") / "runs"
    for file in (content("first"), content("second", search={"seed": 5}), content("larger", classes=32)):
        for search in run_here(runs, [file]):
            search.close()
    return runs


@pytest.fixture
def runs(earlier: Path, tmp_path: Path) -> Path:
    shutil.copytree(earlier, tmp_path / "runs", copy_function=shutil.copy2)
    return tmp_path / "runs"


def begun(runs: Path, file: dict[str, Any], loss: str = "pnp") -> list[tuple[Params, dict[str, Any] | None]]:
    """The parameters and origin of the trials with which a search begins."""
    search = open_search(make_plan(parse_config(file), runs))
    try:
        begin_studies(search)
        trials = search.study(loss, Stage.SEARCH).trials()
        return [(Params(trial.system_attrs["fixed_params"]), trial.user_attrs.get(LEARNED_FROM)) for trial in trials]
    finally:
        search.close()


def chosen(runs: Path, name: str, loss: str = "pnp") -> tuple[int, dict[str, Any]]:
    found = stored_summary(RunFolder(runs, name)).losses[loss].chosen
    assert found is not None
    assert found.number is not None
    return found.number, dict(found.params or {})


def test_the_choices_of_named_searches_follow_the_default(runs: Path) -> None:
    default, *learned = begun(runs, content("later", ["second", "first"]))
    assert default[1] is None
    for (params, origin), name in zip(learned, ("second", "first"), strict=True):
        number, expected = chosen(runs, name)
        assert number > 0, "the fixture chose a default"
        assert origin == {"search": name, "number": number}
        assert params == Params(expected)


def test_nothing_is_learned_unless_asked_for(runs: Path) -> None:
    assert len(begun(runs, content("later"))) == 1


def test_auto_takes_the_latest_first_and_none_that_knows_the_test(runs: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, *learned = begun(runs, content("later", "auto"))
    names = [origin["search"] for _, origin in learned if origin]
    assert names == ["second", "first"]
    assert (
        "Nothing was learned from larger: 8 classes of this search's test set have the names of classes" in caplog.text
    )


def test_auto_leaves_out_what_cannot_be_read(runs: Path, caplog: pytest.LogCaptureFixture) -> None:
    (runs / "second/summary.json").write_text("{")
    _, *learned = begun(runs, content("later", "auto"))
    assert [origin["search"] for _, origin in learned if origin] == ["first"]
    assert caplog.text.count("Nothing was learned from second: ") == 1, "once for both losses"
    with pytest.raises(Mistakes, match="second"):
        begun(runs, content("last", ["second"]))


def test_another_network_comes_last(runs: Path) -> None:
    path = runs / "second/search.yaml"
    path.write_text(path.read_text().replace("backbone: convnet", "backbone: resnet18"))
    _, *learned = begun(runs, content("later", "auto"))
    assert [origin["search"] for _, origin in learned if origin] == ["first", "second"]


def test_at_most_a_quarter_of_the_trials(runs: Path) -> None:
    assert len(begun(runs, content("later", "auto", search={"trials": 4}))) == 1 + 1
    assert len(begun(runs, content("last", "auto", search={"trials": 3}))) == 1


def test_a_search_goes_on_with_the_trials_it_began_with(runs: Path) -> None:
    file = content("later", "auto")
    before = begun(runs, file)
    shutil.rmtree(runs / "second")
    assert begun(runs, file) == before


def test_a_run_says_what_it_begins_with_once(runs: Path) -> None:
    file = write_search(runs.parent / "later.yaml", content("later", ["first"], stages=["search"]))
    number, _ = chosen(runs, "first")
    assert f"pnp begins with what first (trial {number}) chose." in plain(holdout("run", file, "--runs", runs).stderr)
    more = plain(holdout("run", file, "--runs", runs, "--set", "search.trials=9").stderr)
    assert "begins with" not in more


def test_a_search_that_learns_is_run_and_verified(runs: Path) -> None:
    (search,) = run_here(runs, [content("later", ["first"], stages=["search", "select", "test"], final={"seeds": 2})])
    trials = search.trials("pnp", Stage.SEARCH)
    search.close()
    number, params = chosen(runs, "first")
    assert trials[1].params == params
    assert len(trials) == 8
    assert "ok" in plain(holdout_here("verify", "later", "--runs", runs).stdout)
    assert f"first, trial {number}" in plain(holdout_here("show", "later", "pnp", "1", "--runs", runs).stdout)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"learn_from": ["frist"]}, "search.learn_from: There is no search 'frist'"),
        (
            {"learn_from": ["first"], "from": "second"},
            "learn_from adds first trials, and the search begins with those",
        ),
        ({"learn_from": "auto", "sampler": "grid"}, "sampler grid tries a fixed list of trials"),
        ({"learn_from": "always"}, "search.learn_from"),
    ],
)
def test_wrong_searches_are_refused(runs: Path, changes: dict[str, Any], sentence: str) -> None:
    file = write_search(runs.parent / "later.yaml", content("later", search=changes))
    said = plain(holdout_here("run", file, "--runs", runs, code=2).stderr)
    assert sentence in said
    assert not (runs / "later").exists()


def test_a_search_of_other_losses_is_refused(runs: Path) -> None:
    file = content("later", ["first"], losses=["mpa"], space={})
    with pytest.raises(Mistakes, match=r"learn_from: first searches pnp, triplet, and this search none of them"):
        make_plan_of(file, runs)


def test_one_that_has_not_chosen_is_refused(runs: Path) -> None:
    (runs / "first/selection.json").unlink()
    with pytest.raises(Mistakes, match=r"learn_from: first has not chosen yet"):
        make_plan_of(content("later", ["first"]), runs)


def make_plan_of(file: dict[str, Any], runs: Path) -> None:
    from search.plan.make_plan import read_plan

    read_plan(file, runs)


SPACE = search_space("proxy_anchor", TrainingConfig(), {"margin": {"low": 0.0, "high": 0.5}}, {})


@given(st.dictionaries(st.sampled_from(["margin", "scale", "training.lr", "other"]), st.floats(-10, 200)))
def test_whatever_was_chosen_elsewhere_lies_in_the_space(params: dict[str, float]) -> None:
    found = in_space(SPACE, params)
    assert found.keys() == SPACE.default.keys()
    for name, value in found.items():
        assert SPACE.parameters[name].contains(value)
        if name not in params:
            assert value == SPACE.default[name]
        elif SPACE.parameters[name].contains(params[name]):
            low, high = (getattr(SPACE.parameters[name].distribution, end) for end in ("low", "high"))
            assert abs(value - params[name]) <= (high - low) / 2
