"""The trials that one worker trains together: filled from the queue, and told what became of them."""

from collections.abc import Sequence
from typing import Any

from search.study.trial_queue import RunningTrial, TrialQueue
from trainables.spec import TrialSpec


class Stack:
    """Up to ``size`` trials of ``queue`` on one worker; empty where the worker waits for work.

    The worker knows its trials by their directories, in which nothing else is trained.
    """

    def __init__(self, queue: TrialQueue, size: int) -> None:
        self._queue = queue
        self._size = size
        self._members: dict[str, RunningTrial] = {}

    @property
    def members(self) -> tuple[RunningTrial, ...]:
        """The trials."""
        return tuple(self._members.values())

    def fill(self, *, at_once: int, workers: int) -> tuple[TrialSpec, ...]:
        """Take what is to be trained next, as far as there is room; at most ``at_once`` run on all ``workers``."""
        taken: list[TrialSpec] = []
        while len(self._members) < self._size:
            members = self.members
            running = (
                self._queue.next_beside(members, at_once=at_once, workers=workers)
                if members
                else self._queue.next_trial()
            )
            if running is None:
                break
            self._members[running.spec.directory] = running
            taken.append(running.spec)
        return tuple(taken)

    def on_result(self, news: Sequence[dict[str, Any]]) -> tuple[str, ...]:
        """Carry what a step told of each trial into the studies; the directories of those that do not go on."""
        told = {entry["directory"]: entry for entry in news}
        together = len(self._members)
        ended: list[str] = []
        for directory, running in tuple(self._members.items()):
            if directory in told:
                goes_on = self._queue.on_trial_result(running, told[directory], together)
            else:  # the call that brings it did not arrive: its spec cannot be read there
                self._queue.on_trial_error(running, "its worker could not take it", own=True, together=together)
                goes_on = False
            if not goes_on:
                del self._members[directory]
                ended.append(directory)
        return tuple(ended)

    def on_error(self, reason: str, *, own: bool) -> None:
        """The worker is gone, or its node (``own`` is False)."""
        members, self._members = self.members, {}
        for running in members:
            self._queue.on_trial_error(running, reason, own=own, together=len(members))
