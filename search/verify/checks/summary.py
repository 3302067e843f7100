"""``summary.json``, which is derived from the records, derived once more."""

import json
from collections.abc import Iterator

from search.report.summary import summarise
from search.study.names import Stage
from search.verify.check import Check, as_json, check, differing
from search.verify.records import Records

LASTING = ("best", "confirmed", "final", "test")


def check_summary(records: Records) -> Iterator[Check]:
    """All that the summary says, intervals and all; a stage that is under way is not in it yet."""
    if _is_under_way(records):
        what = "summary.json: a stage is under way, at whose end it is written"
        yield Check(what, next(_vanished(records), None), is_there=False)
        return
    yield check("summary.json: counts, values, intervals, curves, diagnostics and times", _problems(records))


def _is_under_way(records: Records) -> bool:
    search, config = records.search, records.plan.config
    trials = [trial for stage in Stage for loss in records.losses(stage) for trial in search.trials(loss, stage)]
    return not all(map(search.is_done, config.stages)) or not all(trial.state.is_finished() for trial in trials)


def _vanished(records: Records) -> Iterator[str]:
    """What the last summary was made of, and is gone: what was confirmed, trained or scored once stays so."""
    path = records.plan.folder.summary
    before = json.loads(path.read_text())["losses"] if path.exists() else {}
    now = summarise(records.search).model_dump(mode="json")["losses"]
    for loss, entry in before.items():
        for key in LASTING:
            if entry[key] is not None and now[loss][key] is None:
                yield from differing(f"summary.json {loss} {key}", entry[key], None)


def _problems(records: Records) -> Iterator[str]:
    path = records.plan.folder.summary
    if not path.exists():
        yield f"summary.json: nothing is stored, and all stages of {records.plan.config.name} are done."
        return
    anew = summarise(records.search).model_dump(mode="json")
    yield from differing("summary.json", json.loads(path.read_text()), as_json(anew))
