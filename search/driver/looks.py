"""Looks at a test whose number of seeds is not fixed (``final.seeds: auto``): how many seeds to train, and when to end.

A group sequential test: the looks are planned in the ledger before the first one, and each has a share of the error
(:class:`search.report.scored.Look`). So what is trained for the next look may depend on the results of those before.
"""

from typing import Any

from search.plan.runs import ENDED, RunFolder
from search.plan.search import OpenedSearch
from search.report.comparison import compare
from search.report.results import Summary
from search.report.summary import write_summary
from trainables.files import read_json, write_json


def looks_taken(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the looks at the test so far, in order, as the ledger has them; none if its seeds are fixed."""
    records = read_json(folder.test)["openings"] if folder.test.exists() else []
    return [record["look"] for record in records if record.get("look")]


def next_look(search: OpenedSearch) -> dict[str, Any] | None:
    """Return the look that the next opening of the test is; None if its seeds are fixed."""
    taken, final = looks_taken(search.plan.folder), search.config.final
    if not taken and final.seeds != "auto":
        return None
    of = taken[0]["of"] if taken else list(final.looks)
    return {"seeds": of[min(len(taken), len(of) - 1)], "of": of}


def seeds_to_train(search: OpenedSearch) -> int:
    """Return the seeds of each configuration that the test needs, or had: those of its next or of its last look."""
    taken = looks_taken(search.plan.folder)
    look = taken[-1] if taken and search.plan.folder.is_tested else next_look(search)
    seeds: int = look["seeds"] if look else search.config.final.looks[0]
    return seeds


def end_of(folder: RunFolder, summary: Summary) -> dict[str, Any] | None:
    """Return after how many seeds the test of a search ends, and why; None if more seeds could decide a pair.

    The last look ends it in any case.
    """
    taken = looks_taken(folder)
    look, pairs = taken[-1], compare([folder], [summary]).pairs
    if all(pair.differ or pair.same for pair in pairs):
        why = "every pair is decided" if pairs else "there are no pairs to decide"
    elif look["seeds"] == look["of"][-1]:
        why = "no more were planned"
    elif any(pair.is_open for pair in pairs):
        return None
    else:
        why = f"{look['of'][-1]} seeds could decide none of the pairs that are left"
    return {"seeds": look["seeds"], "why": why}


def end_or_go_on(search: OpenedSearch) -> str | None:
    """Write that the test has ended, or say why it goes on; None if it has ended, or was not looked at."""
    folder, taken = search.plan.folder, looks_taken(search.plan.folder)
    if not taken or folder.is_tested:
        return None
    if end := end_of(folder, write_summary(search)):
        write_json(folder.test, {**read_json(folder.test), ENDED: end})
        return None
    seeds, more = taken[-1]["seeds"], taken[-1]["of"][len(taken)] - taken[-1]["seeds"]
    return f"{search.name}: pairs are undecided after {seeds} seeds; each configuration gets {more} more."
