"""Several small trainings in one: a GPU that is idle beside one network computes those of many at once."""

from typing import TYPE_CHECKING

from trainables.parts import late_import
from trainables.training.stack.key import stack_key, why_not_stacked

if TYPE_CHECKING:
    from trainables.training.stack.together import run_epochs

__getattr__ = late_import(__name__, {"run_epochs": "trainables.training.stack.together"})

__all__ = ["run_epochs", "stack_key", "why_not_stacked"]
