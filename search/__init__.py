"""Many training runs: configuration, study, tuner, tracking, selection, sealed test, comparison."""

import time

STARTED = time.time()
"""When this process began to be a driver: what its start-up is counted from, imports included."""
