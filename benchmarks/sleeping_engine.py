"""Ray with workers that sleep. A module of its own: the workers import :mod:`benchmarks.sleeping_trial` alone."""

from benchmarks.sleeping_trial import SleepingWorker
from search.engines.ray_engine import RayEngine


class SleepingRay(RayEngine):
    """Ray with workers that sleep, selected by ``resources.engine: benchmarks.sleeping_engine:SleepingRay``."""

    worker = SleepingWorker
