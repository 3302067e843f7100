"""The command line."""

import time

STARTED = time.time()
"""When this process began: what a search's start-up is counted from, imports included."""
