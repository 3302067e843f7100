"""Time and memory of commands, compared to a bare Python, ``optuna --help`` and ``ray --help``.

Every command is a separate process. Rounds of all commands are repeated, so that a busy machine slows all alike;
medians are reported, without the first round. The runs folder holds a small finished search, created here. Run with
``python -m benchmarks start``.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# rich is imported only to print the table: a child's peak memory starts at its parent's.

REPEATS = 5
PEER = "optuna --help"
NOWHERE = "http://127.0.0.1:1"

SEARCH = """\
name: start
dataset: {name: glyphs, num_classes: 16, images_per_class: 4}
training: {epochs: 1, batch_size: 8, images_per_class: 2}
losses: [proxy_anchor, pnp]
search: {trials: 2, pruner: none}
selection: {finalists: 1, seeds: 1}
final: {seeds: 1}
"""


@dataclass(frozen=True)
class Command:
    """A command line and its expected exit code."""

    arguments: Sequence[str]
    code: int = 0


@dataclass(frozen=True)
class Cost:
    """The time and memory of one process."""

    seconds: float
    megabytes: float


def program(name: str) -> str:
    """Return the path of a program in this Python's environment."""
    return str(Path(sys.executable).with_name(name))


def commands(scratch: Path) -> dict[str, Command]:
    """Return every timed command by the name of its row."""
    mistake = scratch / "mistake.yaml"
    mistake.write_text(SEARCH.replace("epochs: 1", "epochs: one").replace("trials: 2", "trails: 2"))
    here = ("--runs", str(scratch / "runs"))
    ours = {
        "--help": Command(["--help"]),
        "-h": Command(["-h"]),
        "--version": Command(["--version"]),
        "losses": Command(["losses"]),
        "backbones": Command(["backbones"]),
        "datasets": Command(["datasets"]),
        "status": Command(["status", *here]),
        "trials": Command(["trials", "start", *here]),
        "trials, one of them": Command(["trials", "start", "pnp", "0", *here]),
        "compare": Command(["compare", "start", *here]),
        "disk": Command(["disk", *here]),
        "status --jobs, no cluster there": Command(["status", "--jobs", "--address", NOWHERE], code=2),
        "a mistyped command": Command(["statsu"], code=2),
        "run, a file with mistakes": Command(["run", str(mistake), *here], code=2),
        "run, a finished search": Command(["run", str(scratch / "start.yaml"), *here]),
    }
    return {
        "python -c pass": Command([sys.executable, "-c", "pass"]),
        PEER: Command([program("optuna"), "--help"]),
        "ray --help": Command([program("ray"), "--help"]),
        **{f"holdout {row}": Command([program("holdout"), *ours[row].arguments], ours[row].code) for row in ours},
    }


def make_search(scratch: Path) -> None:
    """Run a search of two losses with two trials each, below ``scratch``."""
    file = scratch / "start.yaml"
    file.write_text(SEARCH)
    command = [program("holdout"), "run", str(file), "--runs", str(scratch / "runs")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def cost(row: str, command: Command, errors: Path) -> Cost:
    """Run a command once; an unexpected exit code ends the benchmark."""
    with errors.open("wb") as said:
        start = time.perf_counter()
        process = subprocess.Popen(command.arguments, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != command.code:
        sys.exit(f"{row} ended with {process.returncode} and not {command.code}:\n{errors.read_text()}")
    kilobytes = usage.ru_maxrss if sys.platform == "linux" else usage.ru_maxrss / 1024
    return Cost(seconds, kilobytes / 1000)


def measure(lines: Mapping[str, Command], errors: Path) -> dict[str, list[Cost]]:
    """Measure the costs of every command, in rounds of all of them."""
    costs: dict[str, list[Cost]] = {row: [] for row in lines}
    for number in range(REPEATS + 1):
        for row, command in lines.items():
            spent = cost(row, command, errors)
            if number:  # the first round fills the page cache
                costs[row].append(spent)
    return costs


def print_table(costs: Mapping[str, Sequence[Cost]]) -> None:
    """Print medians, and their ratios to the peer's."""
    from rich.console import Console
    from rich.table import Table

    seconds = {row: statistics.median(entry.seconds for entry in spent) for row, spent in costs.items()}
    table = Table(title=f"median of {REPEATS} runs, {os.cpu_count()} CPU cores, Python {sys.version.split()[0]}")
    for column in ("command", "wall, s", "slowest, s", f"× {PEER}", "peak, MB"):
        table.add_column(column, justify="left" if column == "command" else "right")
    for row, spent in costs.items():
        slowest = max(entry.seconds for entry in spent)
        peak = max(entry.megabytes for entry in spent)
        ratio = seconds[row] / seconds[PEER]
        table.add_row(row, f"{seconds[row]:.2f}", f"{slowest:.2f}", f"{ratio:.2f}", f"{peak:.0f}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main() -> None:
    """Make a search, time all commands on it and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        make_search(scratch)
        print_table(measure(commands(scratch), scratch / "errors"))


if __name__ == "__main__":
    main()
