"""Engines, which run the trials of a queue (``base``)."""

from trainables.common.errors import Failure


class NoEngine(Failure):
    """An engine that cannot be started or reached."""
