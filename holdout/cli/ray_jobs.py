"""Ray Jobs: searches and campaigns as jobs on a cluster, each running ``holdout`` there.

"Search" below includes campaigns, which are submitted and followed as a whole. The code travels with the job; the data
does not, and neither do secrets: everybody who may query the cluster can read a job's environment, so passwords are set
on the cluster itself (see CLUSTER.md).
"""

import asyncio
import hashlib
import json
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from search.config.names import plain_name
from search.engines.ray_session import TOKEN_FILE, import_ray, token_path
from search.packages import check_extra
from trainables.common.errors import Failure, InvalidInput
from trainables.common.files import reading

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

    from holdout.cli.submission import Submission


logger = logging.getLogger(__name__)

PATIENCE_S = 10
ANSWER_S = 60
ELSEWHERE = (
    "Of searches on this machine, `holdout status` shows the progress and `holdout trials NAME LOSS NUMBER` a trial's "
    "log; Ctrl-C or `kill` stops them."
)


def _authorization() -> dict[str, str]:
    path = token_path()
    token = os.environ.get("RAY_AUTH_TOKEN", "") if path is None else path.read_text("utf-8") if path.is_file() else ""
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


def wrong_token(address: str) -> InvalidInput:
    return InvalidInput(
        f"The cluster at {address} rejects this machine's token; copy the file .ray/auth_token from the home "
        f"folder of the cluster's head to {Path.home() / TOKEN_FILE}, or name it in RAY_AUTH_TOKEN_PATH."
    )


def unanswered(address: str) -> InvalidInput:
    return InvalidInput(f"The cluster at {address} stopped answering; run the command again.")


def check_answers(address: str) -> None:
    """Raise unless Ray answers at ``address`` within seconds; Ray's own client would wait for minutes."""
    if not address.lower().startswith(("http://", "https://")):
        raise InvalidInput(
            f"--address must be the URL of Ray's dashboard, such as http://HEAD:8265; it is {address!r}."
        )
    try:
        with urlopen(f"{address.rstrip('/')}/api/version", timeout=PATIENCE_S) as answer:
            is_ray = b"ray_version" in answer.read()
    except HTTPError as error:
        is_ray = error.code in (401, 403)
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise InvalidInput(
            f"No cluster answers at {address} ({reason}); start it, forward its port with `ray dashboard`, or correct "
            f"--address. {ELSEWHERE}"
        ) from error
    if not is_ray:
        raise InvalidInput(f"The server at {address} is not a Ray cluster; correct --address.")


# A job's log.

_RAYS = re.compile(
    r"(\x1b\[\d+m)?\((pid=)?(raylet|gcs_server|autoscaler|log_monitor)\b[^)]*\)"  # from its processes
    r"|(\S*\(\w+ pid=[^)]*\)\S* )?\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z] \d+ \d+\]"  # from its C++ in our processes
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\t[A-Z]+ \S+\.py:\d+ -- "  # from its Python
    r"|\t\(\d\) "  # further causes of a message
    r"|Running entrypoint for job "
)
"""The beginnings of Ray's lines."""
_LOG_FOLLOWS = "Raylet logs:"
"""The end of the line before the last log lines of a dead machine, which are indented and end with an empty line."""


class LogFilter:
    """Filter that removes Ray's own lines from a log in pieces; ``left_out`` counts them, hundreds if a machine dies.

    Lines of workers, which Ray prefixes with ``(TrainingTrial pid=…)``, are the search's.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._begun = ""
        self._in_raylet_log = False

    def take(self, text: str) -> str:
        """Return the search's lines that ``text`` completes."""
        *lines, self._begun = (self._begun + text).split("\n")
        return "".join(f"{line}\n" for line in lines if self._is_own(line))

    def end(self) -> str:
        """Return the search's last line, if the log does not end with a newline."""
        begun, self._begun = self._begun, ""
        return begun if begun and self._is_own(begun) else ""

    def _is_own(self, line: str) -> bool:
        if self._in_raylet_log and (not line or line.startswith("    ")):
            is_rays, self._in_raylet_log = True, bool(line)
        else:
            is_rays = bool(_RAYS.match(line))
            self._in_raylet_log = is_rays and line.endswith(_LOG_FOLLOWS)
        self.left_out += is_rays
        return not is_rays


# Searches as jobs.

AGENT_PATIENCE_S = 60
POLL_S = 0.5
MISTAKE = 2
"""The exit code of ``holdout`` after a user's mistake; nothing was created."""
NO_AGENT = "No available agent"
"""Part of Ray's answer during the first half minute after its head started."""
_SEARCH, _ATTEMPT, _RUNS, _FILE = "holdout.search", "holdout.attempt", "holdout.runs", "holdout.file"
"""Keys of a job's metadata."""


@dataclass(frozen=True, kw_only=True)
class SearchJob:
    """One attempt at a search on a cluster.

    Attributes:
        state: Ray's: pending, running, stopped, succeeded, failed.
        runs: the runs folder on the cluster.
        file: the digest of the search file.
        exit_code: the exit code of ``holdout`` there, None while it runs.
    """

    name: str
    job: str
    attempt: int
    state: str
    runs: str
    file: str
    started: str | None
    ended: str | None
    exit_code: int | None

    @property
    def is_live(self) -> bool:
        return self.state in ("pending", "running")


def _search_job(details: Mapping[str, Any]) -> SearchJob:
    """Return the job that Ray describes; raise if its metadata, which everybody may write, are not a search's."""
    with reading(f"The description of the job {details.get('submission_id')!r} on the cluster", "delete the job"):
        metadata, code = details["metadata"], details["driver_exit_code"]
        return SearchJob(
            name=plain_name(metadata[_SEARCH]),
            job=str(details["submission_id"] or ""),
            attempt=int(metadata[_ATTEMPT]),
            state=details["status"].lower(),
            runs=str(metadata[_RUNS]),
            file=str(metadata[_FILE]),
            started=_moment(details["start_time"]),
            ended=_moment(details["end_time"]),
            exit_code=None if code is None else int(code),
        )


def _moment(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Jobs:
    """The searches of a cluster. Made by :func:`connected`, which turns Ray's errors into sentences.

    All but submitting and following use the REST interface of Ray Jobs, since the import of Ray takes seconds.
    """

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    def _ask(self, method: str, job: str, part: str = "") -> Any:
        """Return what the cluster answers about a job, or with an empty ``job`` about all jobs, as JSON."""
        url = f"{self._address}/api/jobs/{quote(job, safe='', errors='replace')}{part}"  # others choose a job's id
        try:
            with urlopen(Request(url, method=method, headers=_authorization()), timeout=ANSWER_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code in (401, 403):
                raise wrong_token(self._address) from error
            reason = error.read(2000).decode(errors="replace")[:500]
            raise Failure(f"The cluster at {self._address} refuses: {reason}") from error
        except (OSError, ValueError) as error:
            raise unanswered(self._address) from error

    def _reading(self, what: str) -> AbstractContextManager[None]:
        return reading(f"The {what} at {self._address}", "check that it is Ray's dashboard")

    def _details(self, job: str) -> Mapping[str, Any]:
        with self._reading(f"description of the job {job!r}"):
            return dict(self._ask("GET", job))

    def log(self, job: str) -> str:
        """Return the output of a job so far, including that of a search's workers."""
        with self._reading(f"log of the job {job!r}"):
            return str(self._ask("GET", job, "/logs")["logs"])

    @cached_property  # only submitting and following need Ray's own client
    def _client(self) -> "JobSubmissionClient":
        import_ray()
        from ray.job_submission import JobSubmissionClient

        sdk = "ray.dashboard.modules"
        for talker in ("ray._private.runtime_env.packaging", f"{sdk}.dashboard_sdk", f"{sdk}.job.sdk"):
            logging.getLogger(talker).setLevel(logging.WARNING)  # INFO reports every upload and every closed connection
        return JobSubmissionClient(self._address)

    def _attempts(self) -> list[SearchJob]:
        """Return all attempts at all searches, the last attempt of each search last; warn of unreadable jobs."""
        jobs: list[SearchJob] = []
        with self._reading("list of jobs"):
            listed = [dict(details) for details in self._ask("GET", "")]
        for details in listed:
            try:
                if _SEARCH in (details.get("metadata") or {}):
                    jobs.append(_search_job(details))
            except InvalidInput as error:
                logger.warning("%s It is left out.", error)
        return sorted(jobs, key=lambda job: job.attempt)

    def searches(self, runs: str | None = None) -> list[SearchJob]:
        """Return the last attempt at each search, sorted by name; only in the runs folder ``runs`` if it is given."""
        last = {job.name: job for job in self._attempts()}
        return [last[name] for name in sorted(last) if runs in (None, last[name].runs)]

    def get(self, name: str, runs: str | None = None) -> SearchJob:
        """Return the last attempt at the search ``name``, in ``runs`` if it is given; raise if there is none."""
        searches = {job.name: job for job in self.searches(runs)}
        if job := searches.get(name):
            return job
        location = f"the cluster at {self._address}" + (f" in {runs}" if runs else "")
        there = ", ".join(searches) or "none yet"
        raise InvalidInput(
            f"There is no search {name!r} on {location}; it has: {there}. `holdout submit` starts one. {ELSEWHERE}"
        )

    def submit(self, submission: "Submission", runs: str, *options: str) -> tuple[SearchJob, bool]:
        """Submit a search; return its job, and True if this is a new attempt, False if the search runs already.

        A name belongs to one search, whose records are in one runs folder. ``options`` are those of ``holdout run``.

        Raises:
            InvalidInput: the search is in another runs folder, or runs already with another file.
        """
        from holdout.cli.submission import SUBMITTED

        digest = hashlib.sha256(submission.text.encode()).hexdigest()
        attempts = [job for job in self._attempts() if job.name == submission.name]
        # An attempt that ended with a mistake created nothing, and the mistake may have been its runs folder.
        if made := next((job for job in attempts[::-1] if job.exit_code != MISTAKE), None):
            _refuse_another_folder(made, runs)
        if attempts and attempts[-1].is_live:
            return _same(attempts[-1], digest), False
        attempt = attempts[-1].attempt + 1 if attempts else 1
        arguments = " ".join(["run", f'"$OLDPWD"/{SUBMITTED}', "--runs", shlex.quote(runs), *options])
        metadata = {_SEARCH: submission.name, _ATTEMPT: str(attempt), _RUNS: runs, _FILE: digest}
        try:
            self._start(arguments, metadata, submission, job=f"holdout-{submission.name}-{attempt}")
        except RuntimeError:
            other = next((job for job in self.searches() if job.name == submission.name), None)
            if other is None or other.attempt < attempt:
                raise
            _refuse_another_folder(other, runs)
            return _same(other, digest), False  # submitted by somebody else at the same time
        return self.get(submission.name), True

    def _start(
        self, arguments: str, metadata: dict[str, str], submission: "Submission | None" = None, job: str | None = None
    ) -> str:
        from holdout.cli.submission import working_directory  # imports pydantic

        deadline = time.monotonic() + AGENT_PATIENCE_S
        text, shipped = (submission.text, submission.shipped) if submission else ("", {})
        with working_directory(text, shipped) as folder:
            while True:
                try:
                    started: str = self._client.submit_job(
                        # Relative folders start at the home folder: the folder of the code is removed with the job.
                        entrypoint=f"cd && exec python -P -m holdout {arguments}",
                        runtime_env={"working_dir": str(folder)},
                        metadata=metadata,
                        submission_id=job,
                    )
                    return started
                except RuntimeError as error:
                    if NO_AGENT not in str(error):
                        raise
                    if time.monotonic() > deadline:
                        raise Failure(
                            f"The cluster at {self._address} has no agent that starts jobs; its head is starting, or "
                            "another Ray of that machine holds the agent's port (`--dashboard-agent-listen-port`)."
                        ) from error
                time.sleep(POLL_S)

    def follow(self, job: SearchJob, say: Callable[[str], None]) -> None:
        """Pass the output of the search to ``say`` until it ends."""

        async def tail() -> None:
            async for text in self._client.tail_job_logs(job.job):
                say(text)

        asyncio.run(tail())

    def stop(self, job: SearchJob) -> SearchJob:
        """End the search's process and return the ended job; the next attempt resumes its studies."""
        self._ask("POST", job.job, "/stop")
        return self.wait(job)

    def wait(self, job: SearchJob) -> SearchJob:
        while job.is_live:
            time.sleep(POLL_S)
            job = _search_job(self._details(job.job))
        return job

    def status(self, name: str | None, runs: str) -> list[dict[str, Any]]:
        """Return the output of ``holdout status`` there for ``name``, or for all searches.

        ``runs`` is the runs folder of searches that were not submitted to this cluster (its head may be a new one).
        """
        folders = {job.runs for job in self.searches() if name in (None, job.name)} or {runs}
        words = f"status {shlex.quote(name)}" if name else "status"
        return [entry for folder in sorted(folders) for entry in self._answer(words, folder)]

    def _answer(self, words: str, runs: str) -> Any:
        """Return the JSON that the command ``words`` prints there, next to the runs folder and the storage."""
        question = self._start(f"{words} --runs {shlex.quote(runs)} --json", {"holdout.question": words})
        while (details := self._details(question))["status"] in ("PENDING", "RUNNING"):
            time.sleep(POLL_S)
        lines = LogFilter().take(self.log(question) + "\n").splitlines()
        self._ask("DELETE", question)
        if details["status"] != "SUCCEEDED":
            if details["driver_exit_code"] == MISTAKE:
                raise InvalidInput(lines)
            raise Failure(f"The cluster could not carry out `holdout {words}`: {details['message']}")
        start = next(number for number, line in enumerate(lines) if line[:1] in ("[", "{"))
        return json.loads("\n".join(lines[start:]))


def _refuse_another_folder(job: SearchJob, runs: str) -> None:
    if job.runs != runs:
        raise InvalidInput(
            f"The search {job.name} is in the runs folder {job.runs} of this cluster, and --runs is {runs}; give it "
            f"--runs {job.runs} to resume it, or give the new one another name."
        )


def _same(job: SearchJob, digest: str) -> SearchJob:
    if job.file != digest:
        raise InvalidInput(
            f"The search {job.name} runs already with another file; `holdout stop {job.name}` ends it, "
            "or give the new one another name."
        )
    return job


@contextmanager
def connected(address: str) -> Iterator[Jobs]:
    """Yield the jobs of the cluster whose dashboard is at ``address``.

    Raises:
        InvalidInput: nothing or no Ray answers there, or one with another token, or packages are missing.
    """
    check_extra("A cluster", ["ray"])
    check_answers(address)
    try:
        yield Jobs(address)
    except (InvalidInput, Failure):
        raise
    except OSError as error:
        raise unanswered(address) from error
    except Exception as error:
        if type(error).__name__ == "AuthenticationError":  # Ray's, which is imported only for submitting and following
            raise wrong_token(address) from error
        if isinstance(error, RuntimeError):  # all other errors of Ray's client
            raise Failure(f"The cluster at {address} refuses: {error}") from error
        raise
