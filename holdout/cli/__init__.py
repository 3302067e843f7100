"""The command line."""

import time

STARTED = time.time()
"""The start of this process; a search's start-up time includes the imports."""
