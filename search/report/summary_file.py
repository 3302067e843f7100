"""The file ``summary.json`` as JSON, which :class:`search.report.results.Summary` types, and what all of them show."""

import json
from pathlib import Path
from typing import Any, Final

from search.plan.runs import RunFolder, find_runs, refuse_renamed
from trainables.errors import InvalidInput, counted
from trainables.files import reading

FORMAT: Final = 7
"""Changes whenever the keys of the file or their meaning change."""

AGAIN = "`holdout run` with the search's file writes it again from the search's records"


def read_summary(path: Path) -> dict[str, Any]:
    """Return the content of the file at ``path``.

    Raises:
        InvalidInput: another version wrote it, or it is damaged.
    """
    try:
        content: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is damaged ({error}); {AGAIN}.") from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise InvalidInput(
            f"{path} was written by another version: its format is {json.dumps(found)} and this version reads "
            f"{FORMAT}; {AGAIN}."
        )
    if not isinstance(content.get("losses"), dict):
        raise InvalidInput(f"{path} is damaged (losses: must be an object; it is {content.get('losses')!r}); {AGAIN}.")
    return dict(content)


# Overtuning: how often what was chosen by validation ended below the default on the test classes. Schneider et al. 2025
# ("Overtuning in hyperparameter optimization", arXiv 2506.19540) find a choice worse than the default or the first
# configuration in about 10 % of published searches.

KNOWN = "about 10 % in published searches, arXiv 2506.19540"


def _choices_and_defaults(folder: RunFolder) -> list[tuple[float, float]]:
    """Return the objective on the test classes of each choice of a search, and that of its default.

    A choice that is the default is one of them. There are none before the test, if the test does not compute the
    objective, and in a search that cannot be read.
    """
    try:
        with reading(folder.summary):
            content = read_summary(folder.summary)
            refuse_renamed(folder, content["name"])
            tests = [[row["test"] or {} for row in (tuned, tuned["default"])] for tuned in content["losses"].values()]
            scores = [[test.get(content["objective"]) for test in pair] for pair in tests]
            return [(float(tuned["mean"]), float(default["mean"])) for tuned, default in scores if tuned and default]
    except (FileNotFoundError, InvalidInput):
        return []


def overtuning_sentence(runs: Path) -> str | None:
    """Return the sentence on the choices in the folder ``runs``; None if none was tested."""
    found = [pair for folder in find_runs(runs) for pair in _choices_and_defaults(folder)]
    if not found:
        return None
    below = sum(value < other for value, other in found)
    choices = counted(len(found), "tested choice")
    return f"Of {choices} in this runs folder, {below or 'none'} ended below the default on test classes ({KNOWN})."
