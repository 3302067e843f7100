"""Engines, which run the trials of a queue (``base``), and searches as jobs on a cluster (``ray_jobs``)."""

from trainables.errors import Failure


class NoEngine(Failure):
    """An engine that cannot be started or reached."""
