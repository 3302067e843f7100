"""Time limits for what may not answer."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Times in seconds."""

    store_s: float = 120.0
    """One request to an object store, plus its transfer at ``bytes_a_second``."""
    bytes_a_second: float = 1e6
    """Lowest transfer rate that counts as working."""
    machine_said_s: float = 30.0
    """Between two warnings that no trial has a machine."""
    machine_s: float = 2400.0
    """Until the search ends if no machine fits. A machine that reboots is back by then."""
    first_epoch_s: float = 7200.0
    """Silence before the first epoch ends: a worker loads weights and may decode all images on a new machine."""
    silence_s: float = 600.0
    """Least silence after the first epoch: a network file system may be away for minutes."""


LIMITS = Limits()
