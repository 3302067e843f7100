"""All checks of a search, in the order in which its records rest on each other."""

from collections.abc import Callable, Iterator

from search.plan.plan import Plan
from search.plan.runs import RunFolder
from search.selection.selection import Selection
from search.study.names import Stage
from search.verify.check import Check
from search.verify.checks.choice import check_choice, stored_selection
from search.verify.checks.later_stages import (
    check_audited_trials,
    check_confirmations,
    check_final_trainings,
    check_noise_trials,
)
from search.verify.checks.models import check_models
from search.verify.checks.openings import check_ledger
from search.verify.checks.prunings import check_prunings
from search.verify.checks.scores import check_scores
from search.verify.checks.setting import check_split, with_images
from search.verify.checks.studies import check_studies
from search.verify.checks.summary import check_summary
from search.verify.records import Records, plan_from_rules, records_of
from trainables.mistakes import Mistakes


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
