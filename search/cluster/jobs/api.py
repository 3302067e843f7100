"""The REST interface of Ray Jobs: what can be asked of a cluster without importing Ray, which takes seconds."""

import json
import os
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from search.cluster.session import TOKEN_FILE, token_path
from trainables.mistakes import Failure, Mistakes

PATIENCE_S = 10
ANSWER_S = 60


class ClusterFailure(Failure):
    """The cluster answers and cannot do what it is asked; the message says so."""


class JobsApi:
    """The jobs of the cluster whose dashboard is at ``address``; details are Ray's, as JSON."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    def list(self) -> list[Mapping[str, Any]]:
        """The details of every job."""
        return list(self._ask("GET", "/api/jobs/"))

    def details(self, job: str) -> Mapping[str, Any]:
        """The details of one job."""
        return dict(self._ask("GET", f"/api/jobs/{job}"))

    def log(self, job: str) -> str:
        """All that a job has written so far."""
        return str(self._ask("GET", f"/api/jobs/{job}/logs")["logs"])

    def stop(self, job: str) -> None:
        """Ask a job to end."""
        self._ask("POST", f"/api/jobs/{job}/stop")

    def delete(self, job: str) -> None:
        """Forget a job that has ended."""
        self._ask("DELETE", f"/api/jobs/{job}")

    def _ask(self, method: str, path: str) -> Any:
        request = Request(f"{self.address}{path}", method=method, headers=_authorization())
        try:
            with urlopen(request, timeout=ANSWER_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code in (401, 403):
                raise wrong_token(self.address) from error
            raise ClusterFailure(f"The cluster at {self.address} refuses: {error.read().decode()[:500]}") from error
        except (OSError, ValueError) as error:
            raise unanswered(self.address) from error


def _authorization() -> dict[str, str]:
    path = token_path()
    token = os.environ.get("RAY_AUTH_TOKEN", "") if path is None else path.read_text() if path.is_file() else ""
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


def wrong_token(address: str) -> Mistakes:
    """The sentence on a cluster that has another token."""
    return Mistakes(
        f"The cluster at {address} does not take this machine's token; copy the file .ray/auth_token from the home "
        f"folder of the cluster's head to {Path.home() / TOKEN_FILE}, or name it in RAY_AUTH_TOKEN_PATH."
    )


def unanswered(address: str) -> Mistakes:
    """The sentence on a cluster that was there a moment ago."""
    return Mistakes(f"The cluster at {address} stopped answering; give the command again.")


def check_answers(address: str) -> None:
    """Refuse, within seconds, an address where no Ray answers; its client would wait for minutes.

    Raises:
        Mistakes: nobody answers there, or no Ray.
    """
    if urlsplit(address).scheme not in ("http", "https"):
        raise Mistakes(f"--address must be the URL of Ray's dashboard, such as http://HEAD:8265; it is {address!r}.")
    try:
        with urlopen(f"{address.rstrip('/')}/api/version", timeout=PATIENCE_S) as answer:
            is_ray = b"ray_version" in answer.read()
    except HTTPError as error:
        is_ray = error.code in (401, 403)
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise Mistakes(
            f"No cluster answers at {address} ({reason}); start it, forward its port with `ray dashboard`, "
            "or mend --address."
        ) from error
    if not is_ray:
        raise Mistakes(f"What answers at {address} is not a Ray cluster; mend --address.")
