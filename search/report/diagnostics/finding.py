"""One thing trial_value knowing about a study."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    """``kind`` for programs, ``parameters`` it is about, and what there is to say, with the numbers behind it."""

    kind: str
    parameters: tuple[str, ...]
    sentence: str
