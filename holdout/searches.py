"""Searches from Python: run them, open them, compare them."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.plan.stored import StoredSearch, stored_search, trial_row
from search.report.results import Summary
from search.trials import epochs_of

if TYPE_CHECKING:
    import pandas
    import torch

    from search.driver.start import OnEpoch
    from search.report.results import Comparison
    from trainables.inference.embedder import Embedder


def runs_folder(runs: str | os.PathLike[str] | None) -> Path:
    """``runs``; where it is None, what ``HOLDOUT_RUNS`` says, or ``runs`` below the current folder."""
    return Path(runs if runs is not None else os.environ.get("HOLDOUT_RUNS") or "runs")


class Search:
    """A search that was begun, for reading while it runs and after. Made by :func:`run` and :func:`open`."""

    def __init__(self, stored: StoredSearch) -> None:
        self._stored = stored

    def __repr__(self) -> str:
        return f"<holdout.Search {self.name!r} in {str(self.folder.parent)!r}: {', '.join(self.losses)}>"

    @property
    def name(self) -> str:
        """The search's name."""
        return self._stored.name

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return self._stored.folder.path

    @property
    def losses(self) -> tuple[str, ...]:
        """The names of its losses."""
        return self._stored.losses

    @property
    def storage_url(self) -> str:
        """The address of its Optuna storage; a password in it is filled in from the environment."""
        return self._stored.storage_url

    def trials(self, loss: str) -> "pandas.DataFrame":
        """The trials of a loss, a row each.

        Args:
            loss: a loss of the search; ``mpa@confirm`` and ``mpa@final`` are its later trainings.

        Returns:
            ``number``, ``state`` (Optuna's), ``value``, a column ``params_<name>`` a hyperparameter, ``seed``,
            ``epochs`` (how many were trained), ``replicate_of`` (the first trial with the same parameters) and
            ``outcome`` (why it ended).

        Raises:
            Mistakes: the search has no such loss.
        """
        import pandas

        rows = [trial_row(trial) for trial in self._stored.trials_of(loss)]
        parameters = pandas.DataFrame([{f"params_{name}": value for name, value in row.params.items()} for row in rows])
        facts = pandas.DataFrame(
            [[getattr(row, name) for name in _FACTS] for row in rows], columns=list(_FACTS)
        ).astype(dict.fromkeys(("seed", "replicate_of"), "Int64"))
        return pandas.concat([facts[["number", "state", "value"]], parameters, facts[list(_FACTS[3:])]], axis=1)

    def history(self, loss: str, number: int) -> "pandas.DataFrame":
        """The epochs of one trial, a row each: ``epoch``, the training ``loss``, the validation's metrics, ``seconds``.

        ``batches`` is the number of training steps. A loss that mines or samples has a column more, ``triplets`` or
        ``pairs``: how many it used in the epoch. Under cross-validation ``fold`` says whose epoch it is.

        Raises:
            Mistakes: the search has no such loss or trial.
        """
        import pandas

        return pandas.DataFrame(
            [
                {
                    **({"fold": record["fold"]} if "fold" in record else {}),
                    "epoch": record["epoch"],
                    "loss": record["loss"],
                    "batches": record["batches"],
                    **record.get("used", {}),
                    **record["metrics"],
                    "seconds": record["end"] - record["start"],
                }
                for record in epochs_of(self._stored.trial_of(loss, number))
            ]
        )

    @property
    def summary(self) -> Summary:
        """What the search came to so far, as ``summary.json`` holds it.

        Raises:
            Mistakes: its first stage is not done yet.
        """
        from search.report.results import stored_summary

        return stored_summary(self._stored.folder)

    def best_model(self, loss: str | None = None, *, device: "str | torch.device | None" = None) -> "Embedder":
        """The chosen model of ``loss``, as it was tested.

        Without ``loss`` it is that of the loss with the highest confirmed mean on the validation classes.

        Raises:
            Mistakes: the search has no such loss, or its models for the test are not trained yet.
        """
        from search.report.models import model_folder
        from trainables.inference.embedder import load_model

        folder = model_folder(self._stored, loss)
        return load_model(str(folder), device=device, trust_code=True)  # the search has run that code already

    def comparison(self) -> "Comparison":
        """Its losses beside each other, default and tuned, and which of them differ."""
        return compare(self.name, runs=self._stored.folder.runs)


_FACTS = ("number", "state", "value", "seed", "epochs", "replicate_of", "outcome")


def run(
    file: str | os.PathLike[str] | Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    runs: str | os.PathLike[str] | None = None,
    on_epoch: "OnEpoch | None" = None,
    quiet: bool = False,
) -> Search:
    """Start a search, go on with it or extend it, as ``holdout run`` does; a finished one is only opened.

    Args:
        file: a search file, the name of a recipe, or a search file's keys and values.
        settings: keys to set in it, as ``{"search.trials": 4}``.
        runs: the runs folder (by default ``HOLDOUT_RUNS``, or ``runs``).
        on_epoch: ``on_epoch(study, number, record)``, called in this process after every epoch of every trial; what it
            raises ends the search, which then goes on with the next call.
        quiet: whether to show no progress on standard error.

    Raises:
        Mistakes: all that is wrong with the file; nothing is created then.
        Failure: it could not be done.
    """
    from search.cli.output import Terminal
    from search.config.recipes import read_search
    from search.config.yaml_file import with_value
    from search.driver.start import run_search

    started = time.time()
    content: dict[str, Any] = dict(file) if isinstance(file, Mapping) else read_search(Path(file))
    for key, value in (settings or {}).items():
        content = with_value(content, key.split("."), value)
    console = Terminal(stderr=True, quiet=quiet)
    outcome = run_search(content, runs_folder(runs), console, started=started, on_epoch=on_epoch)
    return Search(StoredSearch(outcome.search.plan.folder))


def open(name: str, *, runs: str | os.PathLike[str] | None = None) -> Search:
    """The search ``name``, which may be running; nothing is written.

    Raises:
        Mistakes: there is none of that name.
    """
    return Search(stored_search(runs_folder(runs), name))


def compare(*names: str, runs: str | os.PathLike[str] | None = None) -> "Comparison":
    """The losses of searches of one split beside each other, and which of them differ.

    Raises:
        Mistakes: a search is not there or has no result yet, or they have different splits or objectives.
    """
    from search.report.comparison import compare as compare_searches
    from search.report.results import stored_summary

    folders = [stored_search(runs_folder(runs), name).folder for name in dict.fromkeys(names)]
    return compare_searches(folders, [stored_summary(folder) for folder in folders])
