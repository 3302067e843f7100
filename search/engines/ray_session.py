"""The connection to Ray: the process's own, else one with token authentication, for Ray listens on every interface."""

import logging
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from search.engines import NoEngine
from trainables.common.errors import REFERRED
from trainables.common.process import allotted_cpus

logger = logging.getLogger(__name__)

ATTEMPTS = 3

TOKEN_FILE = Path(".ray") / "auth_token"

DEFAULTS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths of a search file are relative to the driver's folder
    "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE": "1",  # the study retries; Tune would train the same trial once more
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one ignores the verbosity
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # an interrupt ends the search at once; the studies lose nothing
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",  # the study is the state; Tune's own snapshot is never read
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
"""Ray's settings during a session, unless the environment has others."""

_IMPORT = threading.Lock()
_before: dict[str, str | None] = {}  # the environment variables that a session changes


def token_path() -> Path | None:
    """Return the file of the token, None if the environment holds the token itself."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return None
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / TOKEN_FILE)


def ensure_token() -> None:
    """Turn token authentication on; write a token for its owner alone unless a file or the environment has one."""
    os.environ["RAY_AUTH_MODE"] = "token"
    path = token_path()
    if path is None or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        path.chmod(0o600)
        return
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(32))
    except OSError:
        path.unlink()  # an empty token would be used from then on
        raise


def import_ray() -> ModuleType:
    """Import Ray with its usage report off, its own progress output silenced and, unless it is connected, its token."""
    with _IMPORT:
        for name in (*DEFAULTS, "RAY_AUTH_MODE", "PYTHONBREAKPOINT"):  # Ray sets the last one
            _before.setdefault(name, os.environ.get(name))
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        import ray

        if not ray.is_initialized() and os.environ.get("RAY_AUTH_MODE") != "token":
            ensure_token()
            ray._raylet.Config.initialize("")  # as Ray does itself: it reads the environment when it is imported
    return ray


@contextmanager
def ray_session() -> Iterator[ModuleType]:
    """Use this process's connection, else connect to ``RAY_ADDRESS`` or to a new Ray; raise ``NoEngine`` if not."""
    ray = import_ray()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    is_mine = not ray.is_initialized()
    try:
        try:
            if is_mine:
                _connect(ray, os.environ.get("RAY_ADDRESS"))
        except SystemExit:  # Ray's own handler of a SIGTERM while it starts
            if callable(on_sigterm):
                on_sigterm(signal.SIGTERM, None)
            raise
        if is_mine and threading.current_thread() is threading.main_thread():  # handlers can be set there only
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's own prints the stacks of Python and of C++
        yield ray
    finally:
        if is_mine:
            ray.shutdown()
        while _before:
            name, value = _before.popitem()
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _connect(ray: ModuleType, address: str | None) -> None:
    """Connect to the cluster at ``address``; without one, start a cluster, with retries on a busy machine."""
    options: dict[str, Any] = {} if address else {"num_cpus": allotted_cpus(), "include_dashboard": False}
    if address and (names := os.environ.get(REFERRED)):  # a local cluster inherits them
        options["runtime_env"] = {"env_vars": {REFERRED: names}}
    for left in reversed(range(1 if address else ATTEMPTS)):
        try:
            ray.init(
                address=address or "local",
                logging_level=logging.ERROR,
                log_to_driver=bool(address),  # warnings of workers on other machines show here only
                configure_logging=False,
                **options,
            )
            return
        except Exception as error:  # a late start raises Ray's most general exception
            reason = str(error).strip().splitlines()[0]
            if not address:
                ray.shutdown()
                _end_half_started(ray)
            if not left:
                there = "see that a cluster runs there and that its token is here"
                fix = there if address else "run the same command again when the machine is less busy"
                raise NoEngine(f"Ray did not start at {address or 'this machine'} ({reason}); {fix}.") from error
            logger.warning("Ray did not start (%s); starting it again.", reason)


def _end_half_started(ray: ModuleType) -> None:
    """End the processes of a failed start: Ray forgets them, and they would slow down the next one."""
    package = str(Path(str(ray.__file__)).parent)
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    for process in listed.stdout.splitlines():
        pid, parent, args = process.split(maxsplit=2)
        if int(parent) == os.getpid() and package in args:
            os.kill(int(pid), signal.SIGKILL)
