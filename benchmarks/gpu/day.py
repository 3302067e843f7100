"""The program ``make gpu-day``: everything that only a GPU can answer, in at most 35 minutes.

Each step is a process with a time limit. After each one ``gpu-day.json`` and ``gpu-day.md`` are written again, so that
a step that fails or runs out of time costs only its own results.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import best_device, machine

ROOT = Path(__file__).parents[2]
JSON, PAGE = "gpu-day.json", "gpu-day.md"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A command with its limit in minutes, and the question that it answers; ``tables`` if it can write its tables."""

    name: str
    question: str
    command: tuple[str, ...]
    minutes: float
    tables: bool = True


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The outcome of a step: its exit code (None if it ran out of time), seconds, last lines and tables."""

    name: str
    question: str
    code: int | None
    seconds: float
    output: str
    tables: list[dict[str, Any]] = field(default_factory=list)


PYTEST = ("-m", "pytest", "tests/gpu", "--confcutdir", "tests/gpu", "-o", "filterwarnings=error", "-rs")
STEPS = (
    Step(name="tests", question="Do trainings and metrics compute what a CPU computes?", command=PYTEST,
         minutes=9, tables=False),
    Step(name="neighbours", question="Is torch or faiss faster for neighbours and k-means at SOP's size?",
         command=("-m", "benchmarks.gpu", "neighbours"), minutes=5),
    Step(name="feeding", question="Do steps wait for images?", command=("-m", "benchmarks.gpu", "feeding"), minutes=7),
    Step(name="networks", question="What do bfloat16, memory formats, torch.compile and CUDA graphs bring?",
         command=("-m", "benchmarks.gpu", "networks"), minutes=13),
)  # fmt: skip
"""In 34 minutes at most."""


def answered(step: Step, folder: Path) -> Answer:
    """Run a step, and return its outcome."""
    tables = folder / f"{step.name}.json"
    command = [sys.executable, *step.command, *(["--json", str(tables)] if step.tables else [])]
    begin = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * step.minutes
        )
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, output = None, error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
    return Answer(
        name=step.name,
        question=step.question,
        code=code,
        seconds=round(time.perf_counter() - begin, 1),
        output="\n".join(output.splitlines()[-60:]),
        tables=json.loads(tables.read_text()) if tables.exists() else [],
    )


def page(described: str, answers: Sequence[Answer]) -> str:
    """Return the answers as Markdown."""
    lines = [f"# {described}", ""]
    for answer in answers:
        ended = "out of time" if answer.code is None else f"exit code {answer.code}"
        lines += [f"## {answer.question}", "", f"`{answer.name}`: {ended} after {answer.seconds:.0f} s.", ""]
        for table in answer.tables:
            cells = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
            lines += [f"**{table['title']}**", "", *(f"| {' | '.join(row)} |" for row in cells), ""]
        if answer.code or not answer.tables:
            lines += ["```", answer.output, "```", ""]
    return "\n".join(lines)


def main(folder: Path, steps: Sequence[Step] = STEPS) -> int:
    """Run all steps, and return 1 if one failed or ran out of time."""
    folder.mkdir(parents=True, exist_ok=True)
    device = best_device()
    described = f"{machine(device)}, torch {torch.__version__}, CUDA {torch.version.cuda}"
    answers: list[Answer] = []
    for step in steps:
        print(f"{step.name}: at most {step.minutes:g} minutes …", flush=True)
        answers.append(answered(step, folder))
        content = {"machine": described, "steps": [asdict(answer) for answer in answers]}
        (folder / JSON).write_text(json.dumps(content, indent=1))
        (folder / PAGE).write_text(page(described, answers))
    print(folder / PAGE)
    return int(any(answer.code != 0 for answer in answers))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
