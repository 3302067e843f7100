"""The scenarios: an undisturbed search each, then searches with faults until their number is reached; the summary."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from soak.driving import Injected, Log, Search
from soak.faults import schedule
from soak.scenarios import SCENARIOS, Scenario
from soak.world import services, why_not, world


def soak(
    seed: int, faults: int, names: Sequence[str] | None, kinds: Sequence[str] | None, folder: Path, console: Console
) -> int:
    """Run in ``folder``, all scenarios and kinds of faults unless some are named; return the exit code."""
    scenarios = [SCENARIOS[name] for name in names or SCENARIOS]
    if kinds:
        possible = [replace(each, faults=tuple(kind for kind in each.faults if kind in kinds)) for each in scenarios]
        scenarios = [each for each in possible if each.faults]
    for scenario in list(scenarios):
        if reason := why_not(scenario):
            console.print(f"{scenario.name} is skipped: it {reason}.")
            scenarios.remove(scenario)
    log = Log(folder / "log.jsonl")
    log.write(seed=seed, faults=faults, scenarios=[scenario.name for scenario in scenarios])
    console.print(f"Seed {seed}, {faults} faults; {folder}", highlight=False, soft_wrap=True)
    injected: list[Injected] = []
    found: dict[str, Sequence[str]] = {}
    began = time.monotonic()
    for number, scenario in enumerate(scenarios):
        share = math.ceil((faults - len(injected)) / (len(scenarios) - number))
        of_scenario, differences = rounds(scenario, seed, share, folder / scenario.name, log, console)
        injected += of_scenario
        found |= differences
    show(injected, found, console)
    console.print(f"{time.monotonic() - began:.0f} s.")
    return int(any(found.values()))


def rounds(
    scenario: Scenario, seed: int, faults: int, folder: Path, log: Log, console: Console
) -> tuple[list[Injected], dict[str, Sequence[str]]]:
    """Run searches of a scenario until ``faults`` faults were injected; return their outcomes and the findings."""
    injected: list[Injected] = []
    found: dict[str, Sequence[str]] = {}
    planned = schedule(seed, scenario.name, scenario.faults, faults)
    with ExitStack() as stack:
        here = stack.enter_context(services(scenario, folder / "services"))
        undisturbed = stack.enter_context(world(scenario, here, folder / "0", "soak-0"))
        calm = Search(undisturbed, log)
        calm.run([])
        found[undisturbed.mark] = calm.differences(None)
        number = 0
        while planned:
            number += 1
            with world(scenario, here, folder / str(number), f"soak-{number}") as made:
                search = Search(made, log)
                done = search.run(planned)
                found[made.mark] = search.differences(undisturbed)
                planned = planned[max(1, done) :]
            injected += search.injected
            log.write(search=made.mark, differences=found[made.mark])
            console.print(
                f"{scenario.name} {number}: {len(search.injected)} faults, {len(found[made.mark])} differences",
                highlight=False,
            )
    return injected, found


def show(injected: Sequence[Injected], found: Mapping[str, Sequence[str]], console: Console) -> None:
    """Print the faults by kind and scenario, their outcomes, and all differences."""
    table = Table(box=None, header_style="bold")
    for name in ("scenario", "fault", "injected", "outlived", "command again", "median s"):
        table.add_column(name, justify="left" if name in ("scenario", "fault") else "right")
    kinds = dict.fromkeys((entry.scenario, entry.fault) for entry in injected)
    for scenario, fault in kinds:
        of_kind = [entry for entry in injected if (entry.scenario, entry.fault) == (scenario, fault)]
        outlived = sum(not entry.codes for entry in of_kind)
        seconds = sorted(entry.seconds for entry in of_kind)[len(of_kind) // 2]
        row = (len(of_kind), outlived, sum(len(entry.codes) for entry in of_kind), f"{seconds:.0f}")
        table.add_row(scenario, fault, *map(str, row))
    console.print(table)
    differences = sum(map(len, found.values()))
    console.print(f"\n{len(injected)} faults in {len(found)} searches, {differences} differences.")
    for search, sentences in found.items():
        for sentence in sentences:
            console.print(f"{search}: {sentence}", markup=False, highlight=False, soft_wrap=True)
