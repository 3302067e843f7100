"""Trials proposed by `holdout enqueue`: what is trained next, what is counted, and what is refused."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from support.commands import holdout_here, plain
from support.driving import Opened, drive

from search.driver.make_plan import reopened
from search.records.writable import open_search
from search.stages import Stage


@pytest.fixture
def runs(opened: Opened, tmp_path: Path) -> Path:
    """The runs folder of a search of two losses, two trials each, that have ended."""
    with closing(opened(search={"trials": 2, "pruner": "none"}, losses=["pnp", "proxy_anchor"])) as search:
        drive(search)
    return tmp_path / "runs"


def enqueue(runs: Path, *proposals: Any, loss: str = "proxy_anchor", name: str = "small", code: int = 0) -> Any:
    """Run the command; return its JSON, or the sentences of its refusal."""
    texts = [proposal if isinstance(proposal, str) else json.dumps(proposal) for proposal in proposals]
    params = [word for text in texts for word in ("--params", text)]
    done = holdout_here("enqueue", name, "--loss", loss, *params, "--runs", runs, "--json", code=code)
    return json.loads(done.stdout) if code == 0 else plain(done.stderr)


def test_the_next_run_trains_what_was_proposed_and_counts_it(runs: Path) -> None:
    said = enqueue(runs, {"scale": 16, "margin": 0.1}, {"scale": 40})
    assert said == {
        "search": "small",
        "loss": "proxy_anchor",
        "trials": [{"number": 2, "params": {"scale": 16.0, "margin": 0.1}}, {"number": 3, "params": {"scale": 40.0}}],
        "search_trials": 4,
    }
    with closing(open_search(reopened(runs, "small"))) as search:
        assert [(job.loss, job.number) for job in drive(search)] == [
            ("pnp", 2), ("proxy_anchor", 2), ("pnp", 3), ("proxy_anchor", 3),
        ]  # fmt: skip
        trials = search.trials("proxy_anchor", Stage.SEARCH)
    assert trials[2].params == {"margin": 0.1, "scale": 16.0}
    assert trials[3].params["scale"] == 40.0
    assert "margin" in trials[3].params, "the sampler proposes the rest"
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    assert trials[2].user_attrs["seed"] != trials[3].user_attrs["seed"]


def test_all_mistakes_at_once_and_nothing_enqueued(runs: Path) -> None:
    before = (runs / "small" / "search.yaml").read_text()
    said = enqueue(runs, {"scal": 1, "margin": 7}, {"scale": "big"}, {"scale": True}, code=2)
    assert "scal: proxy_anchor has no such hyperparameter in this search (did you mean scale?)" in said
    assert "margin: it is 7, and the search's space has" in said
    assert "scale: it is 'big'" in said
    assert "scale: it is True" in said
    said = enqueue(runs, {"variant": "Ds", "alpha": 3}, loss="pnp", code=2)
    assert "alpha: it exists only where variant is Dq" in said
    assert "did you mean pnp?" in enqueue(runs, {"alpha": 3}, loss="pmp", code=2)
    for text in ("3", "{}", "{a: "):
        assert "--params" in enqueue(runs, text, loss="pnp", code=2)
    assert (runs / "small" / "search.yaml").read_text() == before
    with closing(open_search(reopened(runs, "small"))) as search:
        assert len(search.trials("proxy_anchor", Stage.SEARCH)) == 2


def test_a_value_between_two_steps_is_refused(opened: Opened, tmp_path: Path) -> None:
    space = {"proxy_anchor": {"margin": {"low": 0.0, "high": 0.4, "step": 0.1}, "scale": [8, 16]}}
    with closing(opened(losses=["proxy_anchor"], space=space)):
        pass
    said = enqueue(tmp_path / "runs", {"margin": 0.15, "scale": 12}, code=2)
    assert "margin: it is 0.15, and the search's space has 0 to 0.4 by 0.1" in said
    assert "scale: it is 12, and the search's space has one of 8, 16" in said
    for margin in (0.3, 3 * 0.1):  # the latter is what Optuna proposes, and `holdout trials` shows
        (trial,) = enqueue(tmp_path / "runs", {"margin": margin, "scale": 16})["trials"]
        assert trial["params"] == {"margin": 0.3, "scale": 16}


def test_refused_while_a_driver_runs_after_the_choice_and_for_a_fixed_list(
    runs: Path, opened: Opened, tmp_path: Path
) -> None:
    with reopened(runs, "small").folder.only_driver():
        assert "is being run by process" in enqueue(runs, {"scale": 16}, code=2)
    with closing(opened(name="spent", search={"trials": 9, "epochs": 3}, losses=["pnp"])) as search:
        drive(search)
    said = enqueue(runs, "{variant: Ds}", loss="pnp", name="spent", code=2)
    assert "pnp takes no more trials in spent: 3 epochs are trained" in said
    (runs / "small" / "selection.json").write_text("{}")
    assert "are already chosen" in enqueue(runs, {"scale": 16}, code=2)
    grid = {"losses": ["proxy_anchor"], "space": {"proxy_anchor": {"margin": 0.1, "scale": [8, 16]}}}
    with closing(opened(name="other", search={"trials": 2, "sampler": "grid", "pruner": "none"}, **grid)):
        pass
    assert "which tries a fixed list of trials" in enqueue(runs, "{scale: 8}", name="other", code=2)
