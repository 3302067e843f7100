"""What is wrong with a search beyond its file's form: its data, its batches, its spaces, its machines, its addresses.

Nothing is created here. All checks are made, and their sentences collected.
"""

from search.plan.checks.plan_checks import make_plan
from search.plan.checks.spaces import spaces_of

__all__ = ["make_plan", "spaces_of"]
