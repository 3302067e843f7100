"""Notifications of a run: one JSON line to a webhook when a stage ends or the run stops with a fault.

They are posted by a thread and never repeated: a server that is slow, away or refuses costs the run nothing but a
warning, and at its end a wait of :data:`PATIENCE_S`.
"""

import json
import logging
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from http.client import HTTPException
from queue import SimpleQueue
from types import TracebackType
from urllib.request import Request, urlopen

from search.secrets import resolved, without_password
from search.stages import Stage
from search.study import QueuedStage

logger = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""Time limit for a server to answer, and for what is left to post when the run ends."""

MOST_CHARACTERS = 500
"""Limit of an error's message in a notification."""


class Notifications:
    """The notifications of the run ``name``, a search or a campaign, to the webhooks ``references`` (``${NAME}``)."""

    def __init__(self, name: str, references: Iterable[str], patience_s: float = PATIENCE_S) -> None:
        self._name = name
        self._patience_s = patience_s
        self._references = tuple(dict.fromkeys(references))
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._post_all, name="notifications", daemon=True)

    def __enter__(self) -> "Notifications":
        """Begin to post."""
        if self._references:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Post the fault that ends the run, if one does; an interrupted run is none. Wait for the last answers."""
        if isinstance(error, Exception):
            message = without_password(str(error))[:MOST_CHARACTERS]
            self._add("stopped", f"{self._name} stopped: {message}", error=type(error).__name__, message=message)
        if self._references:
            self._lines.put(None)
            self._thread.join(self._patience_s)

    def ended(self, stage: Stage) -> None:
        """Post that a stage ended."""
        self._add("stage_ended", f"{self._name}: the stage {stage.value} ended", stage=stage.value)

    def told(self, stages: Iterator[QueuedStage]) -> Iterator[QueuedStage]:
        """Yield ``stages``, and post the end of each but the test, whose models are still to be scored."""
        running = None
        for queued in stages:
            if running not in (None, queued.stage):
                self.ended(running)
            running = queued.stage
            yield queued
        if running not in (None, Stage.TEST):
            self.ended(running)

    def _add(self, event: str, text: str, **facts: str) -> None:
        line = {"text": text, "search": self._name, "event": event, **facts, "at": datetime.now(UTC).isoformat()}
        self._lines.put(json.dumps(line))

    def _post_all(self) -> None:
        while (line := self._lines.get()) is not None:
            for reference in self._references:
                try:
                    _post(resolved(reference), line, self._patience_s)
                except (OSError, ValueError, HTTPException) as error:
                    logger.warning(
                        "tracking.webhook: a notification to %s failed (%s).", reference, without_password(str(error))
                    )


def _post(address: str, line: str, patience_s: float) -> None:
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(address, f"{line}\n".encode(), headers), timeout=patience_s):
        pass
