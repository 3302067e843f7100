"""The choice, from the studies by the rule, and the digests that were frozen with it."""

from collections.abc import Iterator
from dataclasses import replace

from search.campaigns.folder import campaign_of
from search.plan.runs import RunFolder
from search.selection.selection import Selection
from search.stages.freeze import selection_of
from search.study.names import Stage
from search.verify.check import Check, as_json, check, differing
from search.verify.records import Records


def stored_selection(folder: RunFolder) -> Selection | None:
    """The frozen selection; None before there is one.

    Raises:
        Mistakes: its digest does not fit.
    """
    return Selection.load(folder.selection) if folder.selection.exists() else None


def check_choice(records: Records) -> Iterator[Check]:
    """Finalists, choice, reasons and the digests of the studies."""
    folder, losses = records.plan.folder, records.plan.config.loss_names
    if not folder.selection.exists():
        name, trained = records.plan.config.name, any(records.search.trials(loss, Stage.TEST) for loss in losses)
        problem = f"selection.json: nothing is stored, and {name} has trainings for the test." if trained else None
        yield Check("selection.json: the choice", problem, is_there=False)
        return
    yield check("selection.json: finalists and choice, by the rule from the studies", _problems(records))


def _problems(records: Records) -> Iterator[str]:
    search, folder = records.search, records.plan.folder
    for loss in records.plan.config.loss_names:
        budget, trials = records.plan.budget(loss), search.trials(loss, Stage.SEARCH)
        if not budget.done(trials):
            yield (
                f"{records.name_of(loss, Stage.SEARCH)}: {len(trials)} trials are stored and {budget.most} were asked "
                "for, and the choice is made."
            )
    stored = Selection.load(folder.selection)
    # The table of a campaign may change afterwards, and what is frozen stays: the digest holds it.
    of_campaign = campaign_of(folder.runs, folder.name) is not None
    anew = replace(selection_of(search, stored.family if of_campaign else None), id=stored.id)
    yield from differing("selection.json", as_json(stored.to_json()), as_json(anew.to_json()))
