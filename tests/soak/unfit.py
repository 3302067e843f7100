"""Requirements of a scenario that this machine lacks."""

import os

from support.services import Postgres

from soak.scenario import Scenario
from soak.tools import clock, network


def why_not(scenario: Scenario) -> str | None:
    """Return the missing requirement, as a clause after "it"; None if the scenario can run."""
    if scenario.postgres and (Postgres.binaries() is None or os.getuid() != 0):
        return "needs Debian's package postgresql, and root to start it as its own user"
    if scenario.disks and os.getuid() != 0:
        return "mounts file systems, which only root may"
    if scenario.clock and (reason := clock.why_not()):
        return reason
    if scenario.island and (reason := network.why_not()):
        return reason
    return None
