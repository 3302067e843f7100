"""One training on several devices of a machine: each process, a rank, embeds its share of every batch.

Rank 0 is the process of the trial; only it has the loss, the validation and the checkpoints. The other ranks have the
network. The result equals that of one process up to rounding.
"""

from trainables.mistakes import Failure


class RankLost(Failure):
    """A rank's process that died or did not answer."""
