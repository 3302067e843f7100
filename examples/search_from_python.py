"""A search from Python: run it, follow its epochs, look into it afterwards.

    python -m examples.search_from_python

searches two losses on images that the program draws itself, one of them a loss of one's own.
"""

import sys

import holdout

CONTENT = {
    "name": "from-python",
    "dataset": {"name": "glyphs"},
    "training": {"epochs": 4},
    "losses": ["proxy_anchor", "examples.circle_loss:CircleLoss"],
    "search": {"trials": 3},
    "selection": {"finalists": 1, "seeds": 2},
    "final": {"seeds": 2},
}


def main(runs: str | None = None) -> holdout.Search:
    """Run the search below ``runs``, or go on with it, and print what came out."""
    search = holdout.run(
        CONTENT,
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
