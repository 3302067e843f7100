"""All checks of a search, in the order in which its records depend on each other."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import closing

from search.driver.verify.records import Check, Records, as_json, check, differing, plan_from_rules, records_of
from search.driver.verify.scores import check_ledger, check_scores
from search.driver.verify.stages import (
    check_audited_trials,
    check_choice,
    check_confirmations,
    check_final_trainings,
    check_noise_trials,
    check_split,
    stored_selection,
    with_images,
)
from search.driver.verify.trials import check_prunings, check_studies
from search.plan.plan import Plan
from search.plan.runs import RunFolder
from search.plan.stored import StoredSearch
from search.report.models import chosen_model
from search.report.summary import summarise
from search.selection import Selection
from search.stages import Stage
from trainables.inference.model_files import DESCRIPTION, WEIGHTS
from trainables.mistakes import Mistakes

# The models that are handed out: those of the rule, with the weights of their checkpoints.


def check_models(records: Records, selection: Selection) -> Iterator[Check]:
    """Of each loss the folder below ``models/``, where it is written."""
    for loss in selection.chosen:
        if records.plan.folder.model(loss).is_dir():
            yield check(f"models/{loss}: the model that is handed out", _problems(records, selection, loss))


def _problems(records: Records, selection: Selection, loss: str) -> Iterator[str]:
    folder = records.plan.folder.model(loss)
    with closing(StoredSearch(records.plan.folder)) as stored_search:
        model = chosen_model(stored_search, selection, loss)
    if model is None:
        yield f"models/{loss}: it is there, and no training for the test is."
        return
    digest = hashlib.sha256(model.weights).hexdigest()
    stored = json.loads((folder / DESCRIPTION).read_text())
    described = {**model.spec.to_json(), "weights_sha256": digest}
    yield from differing(f"models/{loss} {DESCRIPTION}", stored, as_json(described))
    found = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    yield from differing(f"models/{loss} {WEIGHTS}", found, digest)


# ``summary.json``, which is derived from the records, derived once more.

LASTING = ("best", "confirmed", "final", "test")


def check_summary(records: Records) -> Iterator[Check]:
    """All that the summary says, intervals and all; a stage that is under way is not in it yet."""
    if _is_under_way(records):
        what = "summary.json: a stage is under way, at whose end it is written"
        yield Check(what, next(_vanished(records), None), is_there=False)
        return
    yield check("summary.json: counts, values, intervals, curves, diagnostics and times", _summary_problems(records))


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


def _summary_problems(records: Records) -> Iterator[str]:
    path = records.plan.folder.summary
    if not path.exists():
        yield f"summary.json: nothing is stored, and all stages of {records.plan.config.name} are done."
        return
    anew = summarise(records.search).model_dump(mode="json")
    yield from differing("summary.json", json.loads(path.read_text()), as_json(anew))


# All checks of a search, in the order in which its records rest on each other.


def verify(folder: RunFolder) -> Iterator[Check]:
    """The checks of the search in ``folder``, one after the other, up to the first one that finds something."""
    yield from guarded(lambda: _checks(folder))


def guarded(checks: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """``checks`` up to the first problem; records of which nothing can be made are one like any other."""
    try:
        for found in checks():
            yield found
            if found.problem:
                return
    except Mistakes as mistakes:
        yield Check("the records", mistakes.sentences[0])
    except Exception as error:  # records that were changed may be anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        yield Check("the records", f"They cannot be read where they were left off ({reason}).")


def _checks(folder: RunFolder) -> Iterator[Check]:
    plan = with_images(plan_from_rules(folder))
    yield from check_split(plan)
    records = records_of(plan)
    if records is None:
        yield _without_studies(plan)
        return
    if Stage.NOISE in plan.config.stages:
        yield from check_studies(records, Stage.NOISE)
    yield from check_studies(records, Stage.SEARCH)
    if plan.config.search.audit:
        yield from check_studies(records, Stage.AUDIT)
    yield from check_studies(records, Stage.SELECT)
    yield from check_studies(records, Stage.TEST)
    yield from check_noise_trials(records)
    yield from check_prunings(records)
    yield from check_audited_trials(records)
    yield from check_confirmations(records)
    selection = stored_selection(folder)
    yield from check_choice(records)
    if selection is not None:
        yield from _after_the_choice(records, selection)
    yield from check_summary(records)


def _without_studies(plan: Plan) -> Check:
    later = [path.name for path in (plan.folder.selection, plan.folder.test, plan.folder.summary) if path.exists()]
    problem = f"The studies are gone, and there is {', '.join(later)}." if later else None
    return Check("the studies", problem, is_there=False)


def _after_the_choice(records: Records, selection: Selection) -> Iterator[Check]:
    yield from check_final_trainings(records, selection)
    yield from check_ledger(records, selection)
    yield from check_scores(records, selection)
    yield from check_models(records, selection)
