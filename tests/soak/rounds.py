"""A scenario: an undisturbed search, then searches with faults until their number is reached."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from soak.driving import Injected, Log, Search
from soak.scenario import Scenario
from soak.schedule import schedule
from soak.verdict import differences
from soak.world import services, world


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
        found[undisturbed.mark] = [*calm.trouble, *differences(undisturbed, None)]
        number = 0
        while planned:
            number += 1
            with world(scenario, here, folder / str(number), f"soak-{number}") as made:
                search = Search(made, log)
                done = search.run(planned)
                found[made.mark] = [*search.trouble, *differences(made, undisturbed)]
                planned = planned[max(1, done) :]
            injected += search.injected
            log.write(search=made.mark, differences=found[made.mark])
            console.print(
                f"{scenario.name} {number}: {len(search.injected)} faults, {len(found[made.mark])} differences",
                highlight=False,
            )
    return injected, found
