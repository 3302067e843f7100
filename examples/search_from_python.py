"""A search run, followed epoch by epoch, and read from Python.

    python -m examples.search_from_python

It compares two losses, one of them user-defined, on images drawn by the program.
"""

import sys
from typing import Any

import holdout

CONTENT: dict[str, Any] = {
    "name": "from-python",
    "dataset": {"name": "glyphs"},
    "training": {"epochs": 4},
    "losses": ["proxy_anchor", "examples.circle_loss:CircleLoss"],
    "search": {"trials": 3},
    "selection": {"finalists": 1, "seeds": 2},
    "final": {"seeds": 2},
}


def main(runs: str | None = None, content: dict[str, Any] = CONTENT) -> holdout.Search:
    """Run or resume the search ``content`` in the folder ``runs``, and print its results."""
    search = holdout.run(
        content,
        runs=runs,
        on_epoch=lambda study, number, record: print(study, number, record["epoch"], record["metrics"]["map_at_r"]),
    )
    for loss in search.losses:
        print(search.trials(loss)[["number", "state", "value", "outcome"]].to_string(index=False))
    tested = search.summary.losses["circle_loss"].test
    assert tested is not None
    print("Circle loss on the test classes:", tested["recall_at_1"].mean)
    return search


if __name__ == "__main__":
    main(*sys.argv[1:2])
