"""What the oracle finds of a search that has ended."""

import subprocess
from collections.abc import Iterator

from support.commands import command, without_ended_workers

from soak.driving import GRACE_S, outlived
from soak.oracle import (
    Asked,
    Trials,
    doubled_steps,
    file_differences,
    ledger_differences,
    lock_differences,
    read_trials,
    scores,
    tracking_differences,
    trial_differences,
    undisturbed_differences,
)
from soak.world import World


def differences(world: World, undisturbed: World | None) -> list[str]:
    """Return every difference between the records of a search and the expected ones."""
    assert world.driver is not None
    if (code := world.driver.poll()) != 0:
        return [f"{world.name}: its last driver ended with {code}."]
    scenario = world.scenario
    said = [f"{process.title[:80]} outlives its driver by {GRACE_S} s." for process in outlived(world)]
    if "is behind" in world.said() or "behind the studies" in world.said():
        said += _synchronised(world)
    trials = trials_of(world)
    asked = Asked(
        searches=world.searches,
        losses=scenario.losses,
        trials=scenario.trials,
        epochs=scenario.epochs,
        folds=scenario.folds,
    )
    said += trial_differences(trials, asked)
    said += [sentence for journal in world.journals for sentence in doubled_steps(journal)]
    if undisturbed is not None:
        called = dict(zip(world.searches, undisturbed.searches, strict=True))
        said += undisturbed_differences(trials, trials_of(undisturbed), called)
        for here, there in called.items():
            if scores(world.runs, here) != scores(undisturbed.runs, there):
                said.append(f"{here} has other scores of its test than undisturbed.")
    said += tracking_differences(world.runs, world.searches, scenario.losses, world.name, world.tracking)
    said += ledger_differences(world.runs, world.state, world.searches, scenario.openings)
    said += [
        sentence
        for folder in (world.runs, world.cache, *world.stores)
        if folder.exists()
        for sentence in file_differences(folder)
    ]
    said += lock_differences(world.folder)
    if "Traceback" in (words := without_ended_workers(world.said())):
        said.append(f"A traceback was shown: …{words[words.index('Traceback') :][:3000]}")
    return said


def trials_of(world: World) -> Trials:
    """Return all trials of a world's searches."""
    return {key: trial for journal in world.journals for key, trial in read_trials(journal).items()}


def _synchronised(world: World) -> Iterator[str]:
    """Run the command that the search recommends if MLflow was unreachable at its end; yield what it refuses."""
    for name in world.searches:
        words = command("sync", name, "--runs", world.runs)
        done = subprocess.run(words, capture_output=True, env=world.environment, text=True, check=False)
        if done.returncode:
            yield f"`holdout sync {name}` ended with {done.returncode}: {done.stderr.strip()}"
