"""Functions that run, open and compare searches, and the :class:`Search` that they return."""

import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.config.yaml_file import with_value
from search.records.records import Records, stored_search
from search.records.runs import CampaignFolder
from search.records.status import TrialRow, trial_row
from search.results.answer import Answer
from search.results.comparison import Comparison
from search.results.summary import Summary
from search.trials import epochs_of
from search.trust import ALLOWED, is_trusted, own_code
from trainables.common.errors import InvalidInput
from trainables.common.files import read_json

if TYPE_CHECKING:
    import pandas
    import torch

    from search.driver.start import OnEpoch
    from search.results.campaign import CampaignResult
    from search.show.trial_page import TrialPage
    from trainables.inference.embedder import Embedder
    from trainables.training.own import OwnModel


Loss = str | type | Callable[..., Any]
"""A loss or training: its name, its import path, or a part of your own itself."""


class Search:
    """Read access to a search, during and after its run. Created by :func:`run` and :func:`open`."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def __repr__(self) -> str:
        return f"<holdout.Search {self.name!r} in {str(self.folder.parent)!r}: {', '.join(self.losses)}>"

    @property
    def name(self) -> str:
        """Return the name of the search."""
        return self._records.name

    @property
    def folder(self) -> Path:
        """Return the folder of its files."""
        return self._records.folder.path

    @property
    def losses(self) -> tuple[str, ...]:
        """Return the names of its losses."""
        return self._records.losses

    @property
    def journal(self) -> Path:
        """Return the file of its Optuna studies, for Optuna's ``JournalFileBackend`` and ``optuna-dashboard``."""
        return self._records.folder.journal

    def trials(self, loss: Loss | None = None) -> "pandas.DataFrame":
        """Return the trials of a loss, one per row; without a loss those of all losses, with a column ``loss``.

        Args:
            loss: a loss of the search, as its file names it; ``mpa@confirm`` and ``mpa@final`` are later trainings.

        Returns:
            ``number``, ``state`` (Optuna's), ``value``, one column ``params_<name>`` per hyperparameter, ``seed``,
            ``epochs`` (number of trained epochs), ``replicate_of`` (the first trial with the same parameters) and
            ``outcome`` (why the trial ended).

        Raises:
            InvalidInput: the search has no such loss.
        """
        import pandas

        if loss is None:
            return pandas.concat({name: self.trials(name) for name in self.losses}, names=["loss"]).reset_index("loss")
        rows = [trial_row(trial) for trial in self._records.trials_of(self._study(loss))]
        parameters = pandas.DataFrame([{f"params_{name}": value for name, value in row.params.items()} for row in rows])
        facts = pandas.DataFrame(map(vars, rows), columns=[*TrialRow.__dataclass_fields__])
        facts = facts.astype({"seed": "Int64", "replicate_of": "Int64"})
        first = ["number", "state", "value"]
        return pandas.concat([facts[first], parameters, facts.drop(columns=[*first, "params"])], axis=1)

    def _study(self, loss: Loss) -> str:
        """Return the name of a loss's study; a part of the user's own may be given as in the search file."""
        from search.config.validation import plain

        path = plain(loss)
        parts = [entry for entry in self._records.content["losses"] if not isinstance(entry, str)]
        return next((entry["name"] for entry in parts if entry["part"] == path), str(path))

    def history(self, loss: Loss, number: int) -> "pandas.DataFrame":
        """Return the epochs of a trial, one per row: ``epoch``, training ``loss``, validation metrics, ``seconds``.

        ``batches`` is the number of training steps. A loss that mines or samples adds a column ``triplets`` or
        ``pairs`` with the number used in the epoch, and one with several proxies a class the column
        ``distinct_proxies``; cross-validation adds the column ``fold``. A user-defined training adds a column for each
        number that it reports.

        Raises:
            InvalidInput: the search has no such loss or trial.
        """
        import pandas

        return pandas.DataFrame(
            [
                {
                    **({"fold": record["fold"]} if "fold" in record else {}),
                    "epoch": record["epoch"],
                    "loss": record.get("loss"),
                    "batches": record["batches"],
                    **_as_numbers(record.get("reported", {})),
                    **record.get("used", {}),
                    **{name: record[name] for name in ("distinct_proxies",) if name in record},
                    **_as_numbers(record["metrics"]),
                    "seconds": record["end"] - record["start"],
                }
                for record in epochs_of(self._records.trial_of(self._study(loss), number))
            ]
        )

    @property
    def summary(self) -> Summary:
        """Return the results so far.

        Raises:
            InvalidInput: no trial has begun yet, or the records cannot be read.
        """
        from search.results.comparison import summary_of

        return summary_of(self._records)

    def best_model(
        self, loss: Loss | None = None, *, device: "str | torch.device | None" = None
    ) -> "Embedder | OwnModel":
        """Load the chosen model of ``loss``, the one that was tested.

        Without ``loss``, it is the recommended model; ``untrained`` and ``whitened`` are the networks without training.
        The code of a user-defined network or training is imported if you started the search on this machine, or opened
        it with ``trust_code``.

        Raises:
            InvalidInput: the search has no such loss, its models for the test are not trained yet, or the model names
                code that is not trusted.
        """
        from search.show.model_cards import model_folder
        from search.tracking import load_model
        from trainables.inference.model_files import DESCRIPTION

        folder = model_folder(self._records, None if loss is None else self._study(loss))
        description = read_json(folder / DESCRIPTION)
        named = own_code([description.get("model"), description.get("trainable")])
        return load_model(str(folder), device=device, trust_code=is_trusted(self.folder, named))

    def trial(self, loss: Loss, number: int) -> "TrialPage":
        """Return a trial: its row, its objective after each epoch, its checkpoint and its log.

        Raises:
            InvalidInput: the search has no such loss or trial.
        """
        from search.show.trial_page import trial_page

        return trial_page(self._records, self._study(loss), number)

    def report(self) -> "ReportPage":
        """Write the report, as ``holdout report`` does, and return it; a notebook shows it inline.

        Raises:
            InvalidInput: the records cannot be read.
        """
        from search.show.document import write_search_report

        return ReportPage(write_search_report([self._records]))

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>{self.comparison()._repr_html_()}"

    @property
    def answer(self) -> Answer:
        """Return the answer, as the report has it; raise :class:`InvalidInput` before the choice."""
        if answers := self.comparison().answers:
            return answers[0]
        raise InvalidInput(f"Nothing is chosen in {self.name} yet; `holdout run` with its file resumes it.")

    def comparison(self) -> Comparison:
        """Compare its losses, default and tuned, with tests of their differences."""
        return compare(self.name, runs=self._records.folder.runs)


class ReportPage:
    """A written report; ``path`` is its file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<holdout report {str(self.path)!r}>"

    def _repr_html_(self) -> str:
        page = escape(self.path.read_text("utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="800" style="border: 0"></iframe>'


def run(
    file: str | os.PathLike[str] | Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    runs: str | os.PathLike[str] | None = None,
    on_epoch: "OnEpoch | None" = None,
    allow_failed: bool = False,
    yes: bool = False,
    quiet: bool = False,
) -> Search:
    """Start, resume or extend a search, as ``holdout run`` does; a finished search is only opened.

    Args:
        file: a search file, the name of a recipe, or a mapping with the content of a search file.
        settings: keys to set in it, for example ``{"search.trials": 4}``.
        runs: the runs folder; by default ``HOLDOUT_RUNS``, or ``runs``.
        on_epoch: ``on_epoch(study, number, record)``, called in this process after every epoch of every trial. An
            exception in it stops the search, which the next call resumes.
        allow_failed: choose and test without the losses that failed in every trial.
        yes: open the test even if the choice may be due to chance, because it rests on few validation classes.
        quiet: show no progress on standard error.

    Raises:
        InvalidInput: the file is invalid (all mistakes are listed); nothing is created.
        Failure: the search could not be completed, or a loss failed in every trial.
    """
    from holdout.cli.output import Tables, Terminal, ignore_warnings_of_libraries
    from search.config.recipes import read_search
    from search.driver.start import run_search
    from search.driver.synchronise import where_to_look
    from search.results.comparison import comparison_of
    from search.show.comparison_tables import headline_tables

    started = time.time()
    content: dict[str, Any] = dict(file) if isinstance(file, Mapping) else read_search(Path(file))
    for key, value in dict(settings or {}).items():
        content = with_value(content, str(key).split("."), value)
    if type(sys.stdout).__module__.startswith("ipykernel."):  # a notebook, whose standard error is red
        console = Terminal(quiet=quiet, force_jupyter=False, force_terminal=False)
    else:
        console = Terminal(stderr=True, quiet=quiet)
    with warnings.catch_warnings():
        ignore_warnings_of_libraries()
        search = run_search(
            content, runs_folder(runs), console, started=started, allow_failed=allow_failed, on_epoch=on_epoch,
            opens=lambda doubt: yes,
        )  # fmt: skip
    console.print(Tables(headline_tables(comparison_of(search))))
    report = [f"Report: {search.folder.report}"] if search.folder.report.exists() else []
    for line in (*report, where_to_look([search.plan])):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    return Search(Records(search.folder))


def open(name: str, *, runs: str | os.PathLike[str] | None = None, trust_code: bool = False) -> Search:
    """Open the search ``name``, which may be running, for reading.

    Args:
        name: the search.
        runs: the runs folder; by default ``HOLDOUT_RUNS``, or ``runs``.
        trust_code: import the code and contact the addresses that the search names if you did not start it on this
            machine; its code can do all that you can.

    Raises:
        InvalidInput: there is no search with this name.
    """
    stored = stored_search(runs_folder(runs), name)
    if trust_code:
        ALLOWED.add(stored.folder.path.resolve())
    return Search(stored)


def compare(*names: str, runs: str | os.PathLike[str] | None = None, within: float | None = None) -> Comparison:
    """Compare the losses of one or several searches with the same split, with tests of their differences.

    ``within`` is the margin of equivalence in points; None: ``final.within`` of the search files.

    Raises:
        InvalidInput: a search does not exist or has not begun yet, or the splits or objectives differ.
    """
    from search.results.comparison import compare as compare_searches

    return compare_searches([stored_search(runs_folder(runs), name) for name in dict.fromkeys(names)], within=within)


def campaign(name: str, *, runs: str | os.PathLike[str] | None = None) -> "CampaignResult":
    """Return the result of the campaign ``name``, as it was written last.

    Raises:
        InvalidInput: there is no such campaign, or it has no result yet.
    """
    from search.results.campaign import stored_result

    return stored_result(CampaignFolder(runs_folder(runs), name))


def runs_folder(runs: str | os.PathLike[str] | None) -> Path:
    """Return ``runs``; by default the value of ``HOLDOUT_RUNS``, or ``runs`` below the current folder."""
    return Path(os.path.expanduser(runs if runs is not None else os.environ.get("HOLDOUT_RUNS") or "runs"))


def _as_numbers(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return ``values`` with NaN for undefined ones, as in pandas."""
    return {name: math.nan if value is None else value for name, value in values.items()}
