"""A user's training and metric, drawn: it raises, acts on the process, and reports odd values under odd names.

The search survives it, in a folder of any name, and the secret stays in the environment.
"""

import os
import random
from pathlib import Path

import numpy as np

from hostile.inputs import Action, Attack, command

NAMES = (
    "a?b#c%20d", "it's", '"q"', "<img src=x onerror=alert(1)>", "\N{LATIN SMALL LETTER U WITH DIAERESIS}", "a b", "-rf",
    "${HOME}", "a\nb", "~", "*", "[x]", "x;y&z", "%s{0}", "x" * 200,
)  # fmt: skip
"""Names of folders."""
SECRET = "os.environ['ATTACK_SECRET']"
ACTIONS = (
    "pass", "sys.exit()", "sys.exit('no')", "os.chdir('/')", "torch.set_default_dtype(torch.float64)", "random.seed(0)",
    "locale.setlocale(locale.LC_ALL, 'C')", "warnings.simplefilter('error')", "np.seterr(all='raise')",
    "signal.signal(signal.SIGINT, signal.SIG_IGN)", "torch.manual_seed(0)", "torch.set_grad_enabled(False)",
    "argparse.ArgumentParser().parse_args(['--x'])", "sys.stdout = sys.stderr = io.StringIO()", "1 / 0",
    "raise MemoryError", "raise ExceptionGroup('x', [ValueError('y')])", "raise Exception(object())",
    f"raise ValueError({SECRET})", f"raise KeyError({{'url': f'postgresql://u:{{{SECRET}}}@h/x'}})",
    "raise StopIteration", f"warnings.warn({SECRET})", f"logging.getLogger('lab').error('with %s', {SECRET})",
    f"open('/none/' + {SECRET})",
    f"exec('try:\\n raise ValueError({SECRET})\\nexcept ValueError as e:\\n raise RuntimeError(repr(e)) from e')",
)  # fmt: skip
VALUES = (
    "1.0", "float('nan')", "float('inf')", "-float('inf')", "1e308 * 10", "None", "'1'", "True", "np.float32(1)",
    "torch.tensor(1.0)", "10**400", "1j", "[1]", "np.array([1, 2])", SECRET,
)  # fmt: skip
REPORTED = (
    "loss", "Recall@1", "a/../b", "a//b", "..", "", " ", "x" * 300, "<img src=x>", "a:b", "%s", "a\nb", "a\0b",
    "map_at_r", "\N{LATIN SMALL LETTER E WITH ACUTE}", "\ud7ff", "mlflow.x",
)  # fmt: skip
LAB = """
import argparse, io, locale, logging, os, random, signal, sys, warnings
import numpy as np, torch, holdout

def metric(embeddings, labels):
    return {value}

@holdout.trainable(lr=holdout.Float(0.001, 0.1, log=True, default=0.01))
def train(params, train, report):
    scale = torch.ones(np.asarray(train.items).shape[1])
    for epoch in range(report.epochs):
        if params["lr"] != 0.01 or {always}:
            {action}
        report(lambda items: torch.tensor(np.asarray(items)) * scale, **{{{name!r}: {reported}}})
"""
SEARCH = """
name: lab
trainable: lab:train
dataset: {name: features, file: f.npz}
training: {epochs: 1}
search: {trials: 2, pruner: none}
selection: {finalists: 1, seeds: 1}
final: {seeds: 1}
metrics: {test: [map_at_r, "lab:metric"]}
resources: {engine: in_process}
"""


READ = (
    "status", "status lab --json", "trials lab", "trials lab train 0", "compare lab", "report lab", "verify lab",
    "disk", "sync lab", "sync lab --register", "remove lab --yes",
)  # fmt: skip


def of_code(world: object, draw: random.Random) -> Attack:
    """A training and a metric of a user, run in a folder of any name, and a command that reads the search."""
    place, action, name = draw.choice(NAMES), draw.choice(ACTIONS), draw.choice(REPORTED)
    value, reported, always = draw.choice(VALUES), draw.choice(VALUES), draw.random() < 0.2
    launched = draw.choice(({}, {}, {"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, {"WORLD_SIZE": "2", "RANK": "1"}))
    columns, read = draw.choice((None, None, "0", "-1", "5")), draw.choice(READ)

    def prepare(folder: Path) -> None:
        (folder / place).mkdir()
        written = LAB.format(value=value, action=action, name=name, reported=reported, always=always)
        (folder / place / "lab.py").write_text(written)
        (folder / place / "lab.yaml").write_text(SEARCH)
        drawn = np.random.default_rng(0)
        vectors = np.repeat(drawn.normal(size=(12, 4)), 5, axis=0) + drawn.normal(size=(60, 4))
        labels = np.array([f"c{row // 5:02d}" for row in range(60)])
        np.savez(folder / place / "f.npz", embeddings=vectors.astype("f4"), labels=labels)

    def run_and_read() -> int:
        os.chdir(place)
        os.environ |= launched | ({} if columns is None else {"COLUMNS": columns})
        return max(_code(command(*words.split(), "--runs", "runs")) for words in ("run lab.yaml", read))

    title = f"{action:.40}, {name!r:.20} = {reported:.20}, {value:.20} in {place!r:.20}: {read}"
    return Attack(kind="code", name=title, prepare=prepare, action=run_and_read, may_trace=True)


def _code(action: Action) -> int:
    try:
        return int(action() or 0)  # type: ignore[call-overload, no-any-return]
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 70
