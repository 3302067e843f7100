"""How much of a search is left to chance, because its trials begin before others have ended."""

from search.study.samplers.sampler import Sampler


def left_to_chance(name: str, sampler: Sampler, slots: int, studies: int = 1) -> str | None:
    """One sentence on the trials that ``sampler``, called ``name``, proposes without a model; None where it has none.

    ``studies`` share the ``slots``. A search of the default alone has nothing to propose.
    """
    waits = sampler.waits_for
    if waits is None or sampler.trials == 1 or not sampler.space.searched:
        return None
    each = -(-slots // studies)
    because = f"its model needs {waits} that have ended, and each loss trains {each} at once"
    if not is_blind(sampler, slots, studies):
        blind = f"the first {sampler.unlearnt(each)} of {sampler.trials} trials"
        return f"Sampling ({name}): {blind} are left to chance: {because}."
    mend = f"ask for more than {waits} trials"
    if (useful := (sampler.trials - waits) * studies) > 0:
        mend = f"set search.max_concurrent to {useful} at most, or ask for more trials"
    return f"Sampling ({name}): all {sampler.trials} trials are left to chance: {because}. To learn from them, {mend}."


def is_blind(sampler: Sampler, slots: int, studies: int = 1) -> bool:
    """Whether a sampler with a model proposes all trials without it."""
    return sampler.unlearnt(-(-slots // studies)) >= sampler.trials
