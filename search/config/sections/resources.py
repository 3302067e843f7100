"""The ``resources`` section: what one worker occupies, how many trials it trains, how long it may say nothing."""

from pydantic import Field, field_validator

from search.config.sections.section import Section


class ResourcesSection(Section):
    """What one trial occupies, and for how many of its own epochs its worker may say nothing.

    A part of a GPU (``gpus_per_trial: 0.25``) lets trials share one; with several GPUs each batch of a trial is dealt
    out to them. With ``stack`` a worker trains so many trials at once, which together occupy what one does otherwise.

    A worker that says nothing for ``silent_epochs`` times its slowest epoch, and at least ten minutes, is taken as dead
    and ended; before its first epoch it may for ``first_epoch_minutes``.
    """

    cpus_per_trial: float = Field(default=1, gt=0)
    gpus_per_trial: float = Field(default=0, ge=0)
    stack: int = Field(default=1, ge=1, le=64)
    silent_epochs: float = Field(default=10, ge=2, allow_inf_nan=False)
    first_epoch_minutes: float = Field(default=120, gt=0, allow_inf_nan=False)

    @field_validator("gpus_per_trial")
    @classmethod
    def _part_of_one_or_whole(cls, gpus_per_trial: float) -> float:
        if gpus_per_trial > 1 and not gpus_per_trial.is_integer():
            raise ValueError("must be a part of a GPU, such as 0.5, or a whole number of them")
        return gpus_per_trial

    def workers(self, trials: int) -> int:
        """How many workers train so many trials at once."""
        return -(-trials // self.stack)
