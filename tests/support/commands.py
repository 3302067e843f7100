"""Running the command line as its users do, in its own process."""

import contextlib
import io
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from optuna.trial import FrozenTrial
from support.journals import trials_in

from holdout.cli.main import main

ROOT = Path(__file__).parents[2]


def write_search(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "holdout", *map(str, arguments)]


def without_ended_workers(said: str) -> str:
    """Return a driver's output without the warnings that Python prints in a worker ended by Ray."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    ignored = {line.split(")")[0] for line in lines if ") Exception ignored in:" in line}
    return "\n".join(line for line in lines if line.split(")")[0] not in ignored)


def holdout(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run ``holdout`` and check its exit code; a traceback always fails."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in without_ended_workers(done.stderr), done.stderr
    return done


def holdout_here(*arguments: str | Path, code: int | tuple[int, ...] = 0) -> subprocess.CompletedProcess[str]:
    """Run ``holdout`` in this process, for commands that only read: a new process takes seconds to import.

    If several codes are given, any of them is accepted.
    """
    out, err = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with (
        mock.patch.object(sys, "argv", ["holdout", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ending,
    ):
        main()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    ended = ending.value.code
    assert isinstance(ended, int)
    assert ended in (code if isinstance(code, tuple) else (code,)), out.getvalue() + err.getvalue()
    return subprocess.CompletedProcess(arguments, ended, out.getvalue(), err.getvalue())


def printed(*arguments: str | Path, code: int = 0) -> str:
    """Return what a command prints, without line breaks and colours."""
    return plain(holdout_here(*arguments, code=code).stdout)


def refusal(*arguments: str | Path, code: int = 2) -> str:
    """Return the sentences of a refused command, without line breaks and colours."""
    return plain(holdout_here(*arguments, code=code).stderr)


def json_of(*arguments: str | Path, code: int = 0) -> Any:
    return json.loads(holdout_here(*arguments, "--json", code=code).stdout)


def kill_when(condition: Callable[[], bool], *arguments: str | Path) -> None:
    """Start ``holdout``, and SIGKILL the driver as soon as ``condition`` holds."""
    with tempfile.TemporaryFile("w+") as said:  # a pipe would fill up and block the driver
        driver = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=said)
        deadline = time.monotonic() + 500
        try:
            while not condition():
                if driver.poll() is not None:
                    said.seek(0)
                    pytest.fail(f"the driver ended with {driver.returncode} before it could be killed:\n{said.read()}")
                assert time.monotonic() < deadline, "nothing to kill"
                time.sleep(0.02)
        finally:
            driver.kill()
            driver.wait()


def stored(runs: Path, search: str, study: str) -> list[FrozenTrial]:
    """Return the trials of a study, read as another program would; none before it exists."""
    return trials_in(runs / search / "study.journal", f"{search}/{study}")


def summary(runs: Path, search: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((runs / search / "summary.json").read_text())
    return content


def in_one_process(*commands: Sequence[str | Path], before: str = "", refused: int = 0) -> list[str]:
    """Return a program that runs commands of ``holdout`` in turn, to the first whose exit code is not ``refused``."""
    program = (
        f"import sys; {before}\n"
        "from holdout.cli.main import main\n"
        f"for sys.argv in {[['holdout', *map(str, arguments)] for arguments in commands]!r}:\n"
        "    try: main()\n"
        f"    except SystemExit as end:\n        if end.code != {refused}: raise"
    )
    return [sys.executable, "-c", program]


def holdout_without(
    packages: Sequence[str], folder: Path, *commands: Sequence[str | Path], refused: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run :func:`in_one_process` in ``folder``, the user's home, where ``packages`` cannot be imported."""
    without = f"sys.modules.update(dict.fromkeys({list(packages)!r}))"
    program = in_one_process(*commands, before=without, refused=refused)
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.run(program, cwd=folder, env=environment, check=False, capture_output=True, text=True)


def plain(text: str) -> str:
    """Return terminal output without line breaks and colours."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
