"""Notices of a run: how it prunes and samples, and which searches ended early."""

from collections.abc import Iterator, Sequence

from search.driver.progress_view import duration
from search.records.records import Records
from search.records.work import pace_of, planned_work, seconds_left
from search.stages import Stage, study_name
from search.study import Sampler
from search.tables import PRUNERS
from trainables.common.errors import counted

KEPT = {Stage.SEARCH: "trial", Stage.SELECT: "confirmation", Stage.TEST: "training for the test"}


def resumed(searches: Sequence[Records], left: Sequence[Stage], slots: int) -> Iterator[str]:
    """Yield what each search with ended trials keeps, and what of the stages ``left`` is left on ``slots``."""
    for search in searches:
        works = [*planned_work(search.plan, [*Stage], search.trials)]
        ended = {stage: sum(work.tally.ended for work in works if work.stage is stage) for stage in Stage}
        kept = [counted(count, KEPT[stage]) for stage, count in ended.items() if count]
        if running := sum(work.tally.running for work in works):
            kept.append(counted(running, "unfinished training"))
        trials = sum(max(0, work.budget.most - work.tally.ended) for work in works if work.stage is Stage.SEARCH)
        names = {Stage.SEARCH: f"up to {counted(trials, 'trial')}", Stage.SELECT: "the choice", Stage.TEST: "the test"}
        of_left = [names[stage] for stage in left if not search.is_done(stage)]
        if kept and of_left:
            seconds = seconds_left([work for work in works if work.stage in left], pace_of([search]), slots)
            about = f", about {duration(seconds)} at the pace so far" if seconds else ""
            yield f"Resuming {search.name}; kept: {', '.join(kept)}; left: {', '.join(of_left)}{about}."


def pruning(searches: Sequence[Records]) -> Iterator[str]:
    for search in searches:
        pruner, steps, folds = search.config.search.pruner, search.plan.steps, len(search.plan.split.folds)
        of_folds = f" in {folds} folds" if folds else ""
        yield f"Pruning ({pruner}, {counted(steps, 'epoch')}{of_folds}): {PRUNERS[pruner](steps=steps).plan}."


def first_proposals(searches: Sequence[Records], slots: int) -> Iterator[str]:
    """Yield how many trials of each new study are proposed without a model; all losses share the slots."""
    new = [
        (search.config.search.sampler, sampler)
        for search in searches
        for loss in search.config.loss_names
        if not search.trials(loss, Stage.SEARCH) and (sampler := search.plan.budget(loss).sampler)
    ]
    yield from filter(None, (without_model(name, sampler, slots, len(new)) for name, sampler in new))
    for _, sampler in new:
        if sampler.trials > 1 and not sampler.space.searched:
            same = f"the space of {sampler.loss} is one configuration, so its {sampler.trials} trials differ in their"
            yield f"{same} seeds only; set search.trials to 1, or search a parameter."


def without_model(name: str, sampler: Sampler, slots: int, studies: int = 1) -> str | None:
    """Return a sentence on the trials that a sampler ``name`` proposes without its model; None without one."""
    waits = sampler.waits_for
    if waits is None or sampler.trials == 1 or not sampler.space.searched:
        return None
    each = -(-slots // studies)
    because = f"the sampler learns from {waits} finished trials of a loss, and each loss runs {each} at once"
    if (first := sampler.trials_before_model(each)) < sampler.trials:
        some = f"the first {first} of {sampler.trials} trials"
        return f"Sampling ({name}): {some} are drawn at random: {because}."
    fix = f"ask for more than {waits} trials"
    if (useful := (sampler.trials - waits) * studies) > 0:
        fix = f"set search.max_concurrent to {useful} at most, or ask for more trials"
    all_trials = f"all {sampler.trials} trials are drawn at random"
    return f"Sampling ({name}): {all_trials}: {because}. To use it, {fix}."


def early_ends(searches: Sequence[Records]) -> Iterator[str]:
    """Yield why each study with fewer trials than requested ended."""
    for search in searches:
        for loss in search.config.loss_names:
            if reason := search.plan.budget(loss).early_end(trials := search.trials(loss)):
                yield f"{study_name(search.name, loss, Stage.SEARCH)}: {counted(len(trials), 'trial')}, {reason}."
