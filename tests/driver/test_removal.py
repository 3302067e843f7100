"""Removal of searches: everything of one search and nothing of the others, even if the removal is killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.listening import listening
from support.small_search import small_search

from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from search.records import disk as usage
from search.records.campaign import read_config
from search.records.disk import mark_checkpoints, plan_removal
from search.records.runs import CampaignFolder
from search.records.writable import open_search
from search.stages import Stage
from search.trust import remember, started
from trainables.common.errors import InvalidInput

Make = Callable[..., Path]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Make a runs folder with the files that belong to no single search."""
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "test_openings.jsonl").write_text("{}\n")
    (folder / "mlflow.db").write_bytes(b"mlflow")
    return folder


@pytest.fixture
def make(image_folder: Path, runs: Path) -> Make:
    """Return a function that makes a tested search with trials, checkpoints and results, and returns its folder."""

    def make_search(name: str, **changes: Any) -> Path:
        plan = make_plan(parse_config(small_search(image_folder, name=name, **changes)), runs)
        search = open_search(plan)
        mark_checkpoints(plan.folder)
        for loss in ("proxy_anchor", "pnp"):
            search.study(loss, Stage.SEARCH).enqueue([(plan.spaces[loss].default, {})])
            checkpoints = Path(plan.checkpoint_storage) / name / "trials" / loss / "0000" / "attempt-1"
            checkpoints.mkdir(parents=True)
            (checkpoints / "best.safetensors").write_bytes(bytes(1000))
        search.close()
        folder = plan.folder
        for file in (folder.selection, folder.test, folder.summary):
            file.write_text("{}")
        (folder.path / "test" / "opening").mkdir(parents=True)
        (folder.path / "test" / "opening" / "pnp-0.npz").write_bytes(bytes(10))
        return folder.path

    return make_search


def _tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".driver.lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_search_goes_and_the_rest_of_the_runs_folder_stays(make: Make, runs: Path) -> None:
    before = _tree(runs)
    make("birds-2")
    others = _tree(runs)
    make("birds")
    remember(runs / "birds", ())
    planned = plan_removal(runs, "birds")
    assert planned.size == sum(len(content) for content in _tree(runs / "birds").values())
    planned.carry_out()
    assert not (runs / "birds").exists()
    assert started(runs / "birds") is None, "another folder there is not the user's own"
    assert _tree(runs) == others
    plan_removal(runs, "birds-2").carry_out()
    assert _tree(runs) == before
    assert {path.name for path in runs.iterdir()} == {"test_openings.jsonl", "mlflow.db"}


def test_a_removal_that_is_killed_anywhere_is_finished_by_the_next(
    make: Make, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untouched = _tree(runs)
    remove = usage._remove
    for survived in range(20):
        left = survived

        def killed(path: Path) -> None:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            remove(path)

        folder = make("birds")
        monkeypatch.setattr(usage, "_remove", killed)
        try:
            plan_removal(runs, "birds").carry_out()
        except KeyboardInterrupt:
            is_whole = False
        else:
            is_whole = True
        monkeypatch.undo()
        # The rest is an earlier state of the search: no result without its source, and the search can be resumed.
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        assert names <= {".driver.lock"} or "search.yaml" in names
        assert "test.json" not in names or {"selection.json", "study.journal"} <= names
        assert "selection.json" not in names or "study.journal" in names
        if folder.exists():
            plan_removal(runs, "birds").carry_out()
        assert _tree(runs) == untouched
        assert not folder.exists()
        if is_whole:
            break
    assert is_whole
    assert survived > 5


def test_links_are_not_followed(make: Make, runs: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    folder = make("birds")
    (folder / "notes").symlink_to(outside)
    (folder / "trials" / "mine").symlink_to(outside / "precious")
    plan_removal(runs, "birds").carry_out()
    assert (outside / "precious").exists()
    make("cars").rename(outside / "cars")
    (runs / "cars").symlink_to(outside / "cars")
    before = _tree(outside)
    with pytest.raises(InvalidInput, match=r"runs/cars is a link to .*outside/cars; links are not followed"):
        plan_removal(runs, "cars")
    assert _tree(outside) == before


def test_an_unknown_name_is_refused_with_the_known_ones(make: Make, runs: Path) -> None:
    make("birds")
    before = _tree(runs.parent)
    for name in ("..", ".", "", "birds/trials", "../runs/birds", "brids", "mlflow.db"):
        with pytest.raises(InvalidInput, match=r"There is no search or campaign .*; it has: birds\.") as refused:
            plan_removal(runs, name)
        assert ("did you mean birds?" in str(refused.value)) == (name == "brids")
        assert _tree(runs.parent) == before


def test_a_campaign_takes_its_searches_with_it_and_no_others(make: Make, runs: Path) -> None:
    for name in ("ratio-a", "ratio-c"):
        make(name)
    before = _tree(runs)
    for name in ("ratio-b", "ratio-d"):
        make(name)
    content = {
        "name": "ratio",
        "study": "a study",
        "base": {},
        "vary": {"split": {"b": {}, "d": {}, "never-begun": {}}},
        "table": {"rows": ["split"]},
    }
    CampaignFolder(runs, "ratio").begin(read_config(content))
    planned = plan_removal(runs, "ratio")
    begun = _tree(runs)
    with planned.searches[1].only_driver():
        for remove in (lambda: plan_removal(runs, "ratio"), planned.carry_out):  # it may start after the plan
            with pytest.raises(InvalidInput, match="The search ratio-d is being run by process"):
                remove()
    assert _tree(runs) == begun
    assert [folder.name for folder in planned.searches] == ["ratio-b", "ratio-d"]
    planned.carry_out()
    assert _tree(runs) == before
    assert not (runs / "ratio").exists()
    assert [folder.name for folder in plan_removal(runs, "ratio-a").searches] == ["ratio-a"]


def test_checkpoints_elsewhere_are_kept_and_named(make: Make, runs: Path, tmp_path: Path) -> None:
    """Nothing is contacted; another search of this name does not use them."""
    make("birds", checkpoints={"storage_path": str(tmp_path / "shared")})
    before = _tree(tmp_path / "shared")
    assert "birds/holdout.json" in before
    removal = plan_removal(runs, "birds")
    said = f"The checkpoints of birds in {tmp_path}/shared/birds/trials are kept; remove them there yourself."
    assert removal.kept == (said,)
    removal.carry_out()
    assert not (runs / "birds").exists()
    assert _tree(tmp_path / "shared") == before
    with pytest.raises(InvalidInput, match=r"shared/birds holds the checkpoints of another search, .*; remove them if"):
        make("birds", checkpoints={"storage_path": str(tmp_path / "shared")})
    (config := runs / "birds" / "search.yaml").write_text("checkpoints: {storage_path: 'ftp://me:secret@127.0.0.1:1'}")
    with listening() as (port, heard):
        config.write_text(config.read_text().replace(":1", f":{port}"))
        (kept,) = plan_removal(runs, "birds").kept
        assert f"in ftp://me:***@127.0.0.1:{port}/birds/trials are kept" in kept
        (note,) = [entry.note for entry in usage.measure_disk(runs) if entry.name == "birds"]
        assert note == f"and checkpoints in ftp://me:***@127.0.0.1:{port}/birds/trials"
        config.write_text('checkpoints: {storage_path: "a\\0b"}')
        assert plan_removal(runs, "birds").kept == ()
        plan_removal(runs, "birds").carry_out()
    assert not heard
