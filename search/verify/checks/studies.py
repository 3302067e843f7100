"""The studies: their attributes, and of each trial parameters, seed, epochs, values and end."""

from collections.abc import Iterator, Sequence
from functools import partial

from optuna.trial import FrozenTrial, TrialState

from search.plan.copied_trials import COPIED_FROM
from search.plan.trainings import training_of
from search.study.configurations import configuration_of
from search.study.names import Stage
from search.study.records import epochs_of, record_key, record_keys
from search.verify.check import Check, as_json, check, differing
from search.verify.checks.trial_epochs import epoch_problems
from search.verify.records import Records
from spaces.configuration import Configuration
from trainables.spec import derived_seed


def check_studies(records: Records, stage: Stage) -> Iterator[Check]:
    """Every study of a stage."""
    for loss in records.losses(stage):
        name = records.name_of(loss, stage)
        numbers = records.numbers(loss, stage)
        if not numbers:
            yield Check(name, is_there=False)
            continue
        if numbers != (all_numbers := list(range(len(numbers)))):  # nothing could be looked up by its number
            yield check(name, differing(f"{name}: the trials' numbers", numbers, all_numbers))
            return
        trials = records.search.trials(loss, stage)
        yield check(f"{name}: what it says of its search", _attribute_problems(records, loss, stage))
        ended = sum(trial.state.is_finished() for trial in trials)
        under_way = "" if ended == len(trials) else f", {ended} of which have ended"
        yield check(
            f"{name}: {len(trials)} trials{under_way}, with parameters, seeds, epochs and values",
            _trial_problems(records, loss, stage, trials),
        )


def _attribute_problems(records: Records, loss: str, stage: Stage) -> Iterator[str]:
    """What an opened study says of itself, compared with what it would say if it were opened anew."""
    name, stored = records.name_of(loss, stage), records.attributes(loss, stage)
    anew = records.search_without((name,)).study(loss, stage).attributes()
    budget, trials = records.plan.budget(loss), records.search.trials(loss, stage)
    for key, value in as_json(anew).items():
        if key.startswith("planned_") and not budget.done(trials):
            continue  # more trials may have been asked for since the last driver
        yield from differing(f"{name} {key}", stored.get(key), value)
    if "ended_early" in stored:
        yield from differing(f"{name} ended_early", stored["ended_early"], budget.early_end(trials))


def _trial_problems(records: Records, loss: str, stage: Stage, trials: Sequence[FrozenTrial]) -> Iterator[str]:
    name = records.name_of(loss, stage)
    first_with: dict[Configuration, int] = {}
    for trial in trials:
        what = f"{name} trial {trial.number}"
        if trial.state == TrialState.WAITING:
            continue
        yield from _proposal_problems(records, loss, trial, what)
        if COPIED_FROM not in trial.user_attrs:  # another search's own numbers and seed
            first = first_with.get(configuration_of(trial))
            yield from differing(f"{what} replicate_of", trial.user_attrs.get("replicate_of"), first)
            if stage is Stage.SEARCH:
                seed = derived_seed(records.plan.config.search.seed, loss, trial.number)
                yield from differing(f"{what} seed", trial.user_attrs["seed"], seed)
        first_with.setdefault(configuration_of(trial), trial.number)
        yield from differing(
            f"{what}: its epochs", record_keys(trial), [record_key(record) for record in epochs_of(trial)]
        )
        spec = training_of(records.plan, loss, stage, trial)
        yield from epoch_problems(trial, spec, records.plan.trial_value(stage), what)
        yield from _end_problems(trial, spec.epochs, what)


def _proposal_problems(records: Records, loss: str, trial: FrozenTrial, what: str) -> Iterator[str]:
    """The parameters are those that Optuna holds, lie in the space, and are the default's in trial 0 of a search."""
    space = records.plan.spaces[loss]
    stored = trial.user_attrs["params"]
    yield from differing(f"{what} params", stored, trial.params)
    yield from differing(f"{what} params", stored, dict(space.complete(stored)))
    for parameter, distribution in trial.distributions.items():
        if distribution != space.parameters[parameter].distribution:
            yield (
                f"{what}: {parameter} was drawn from {distribution}, and the search's range is "
                f"{space.parameters[parameter].distribution}."
            )
        if not distribution._contains(distribution.to_internal_repr(trial.params[parameter])):
            yield f"{what}: {parameter} is {trial.params[parameter]}, which lies outside {distribution}."
    if trial.user_attrs.get("default"):
        yield from differing(f"{what} params", stored, dict(space.default))


def _end_problems(trial: FrozenTrial, epochs: int, what: str) -> Iterator[str]:
    """Why it ended is what its state says."""
    tell = partial(differing, f"{what} outcome", trial.user_attrs.get("outcome"))
    if trial.state == TrialState.COMPLETE:
        yield from tell(f"all {epochs} epochs trained")
    if trial.state == TrialState.FAIL:
        failure = trial.user_attrs.get("failure")
        yield from tell(f"{failure['cause']}: {failure['reason']}" if failure else None)
    elif "failure" in trial.user_attrs:
        yield f"{what}: it is {trial.state.name}, and a failure is stored ({trial.user_attrs['failure']})."
