"""Stacks: small trainings computed together by ``torch.func.vmap``, to use a GPU that one network leaves idle.

``key`` says which trainings may share a stack, ``together`` trains one, ``networks`` computes its networks and losses.
"""

from typing import TYPE_CHECKING

from trainables.parts import late_import
from trainables.training.stack.key import stack_key, why_not_stacked

if TYPE_CHECKING:
    from trainables.training.stack.together import run_epochs

__getattr__ = late_import(__name__, {"run_epochs": "trainables.training.stack.together"})

__all__ = ["run_epochs", "stack_key", "why_not_stacked"]
