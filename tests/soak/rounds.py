"""The scenarios: an undisturbed search each, then searches with faults until their number is reached."""
# ruff: noqa: T201

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from soak.driving import Log, Search
from soak.faults import schedule
from soak.scenarios import SCENARIOS, Scenario
from soak.world import services, why_not, world


def soak(seed: int, faults: int, names: Sequence[str] | None, folder: Path) -> int:
    """Run in ``folder``, all scenarios unless some are named; return the exit code."""
    scenarios = [SCENARIOS[name] for name in names or SCENARIOS]
    for scenario in list(scenarios):
        if reason := why_not(scenario):
            print(f"{scenario.name} is skipped: it {reason}.")
            scenarios.remove(scenario)
    log = Log(folder / "log.jsonl")
    log.write(seed=seed, faults=faults, scenarios=[scenario.name for scenario in scenarios])
    print(f"Seed {seed}, {faults} faults; {folder}")
    injected, differences, began = 0, 0, time.monotonic()
    for number, scenario in enumerate(scenarios):
        share = math.ceil((faults - injected) / (len(scenarios) - number))
        for search, found in rounds(scenario, seed, share, folder / scenario.name, log):
            injected, differences = injected + len(search.injected), differences + len(found)
            print(f"{search.world.mark}: {len(search.injected)} faults, {len(found)} differences", *found, sep="\n")
    print(f"{injected} faults, {differences} differences, {time.monotonic() - began:.0f} s.")
    return int(differences > 0)


def rounds(
    scenario: Scenario, seed: int, faults: int, folder: Path, log: Log
) -> Iterator[tuple[Search, Sequence[str]]]:
    """Run searches of a scenario until ``faults`` faults were injected; yield each with what the oracle finds."""
    planned = schedule(seed, scenario.name, scenario.faults, faults)
    with ExitStack() as stack:
        here = stack.enter_context(services(scenario, folder / "services"))
        undisturbed = stack.enter_context(world(scenario, here, folder / "0", "soak-0"))
        calm = Search(undisturbed, log)
        calm.run([])
        yield calm, calm.differences(None)
        number = 0
        while planned:
            number += 1
            with world(scenario, here, folder / str(number), f"soak-{number}") as made:
                search = Search(made, log)
                done = search.run(planned)
                found = search.differences(undisturbed)
                planned = planned[max(1, done) :]
            log.write(search=made.mark, differences=found)
            yield search, found
