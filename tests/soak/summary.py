"""The summary of a run, as a table."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from soak.driving import Injected


def show(injected: Sequence[Injected], found: Mapping[str, Sequence[str]], console: Console) -> None:
    """Return the faults by kind and scenario, their outcomes, and all differences."""
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
