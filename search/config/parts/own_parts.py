"""Where parts of one's own are found: beside the user."""

import os
import sys


def find_parts_here() -> None:
    """Let ``mylab.losses:CircleLoss`` be imported from the folder that the command is given in.

    ``python -m`` does so by itself, and an installed program does not. The folder comes last, so that a file in it
    hides no library; ``python -P`` and ``PYTHONSAFEPATH``, which ask for safety, are obeyed. Ray's workers on this
    machine look in the driver's folder too.
    """
    here = os.getcwd()
    if not sys.flags.safe_path and here not in sys.path:
        sys.path.append(here)
