"""What searches will write, against what is free: said before they begin, and refused where it cannot fit."""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from search.config.secrets import without_password
from search.plan.disk.disk_usage import free_bytes
from search.plan.disk.needs import Need, What, disk_needs
from search.plan.plan import Plan
from trainables.data.store.in_use import is_used
from trainables.data.store.room import limit_of, stores_in
from trainables.files.disk_full import existing
from trainables.mistakes import raise_if_any

TIGHT = 0.9
"""Of what is free: searches that take more are warned of."""

INSTEAD = {
    What.IMAGES: "dataset.cache to another folder",
    What.CHECKPOINTS: "checkpoints.storage_path to another folder or checkpoints.max_gb to less",
    What.RESULTS: "--runs to another folder",
}


@dataclass(frozen=True, kw_only=True)
class Space:
    """A file system and what will be written there; ``free`` in bytes, None where that is not known, as of a store.

    Images that nobody uses, and that make room for others, count as free.
    """

    needs: tuple[Need, ...]
    free: int | None

    @property
    def expected(self) -> int:
        """Bytes that will be written."""
        return sum(need.expected for need in self.needs)

    @property
    def least(self) -> int:
        """Bytes that will be written at least."""
        return sum(need.least for need in self.needs)

    @property
    def in_words(self) -> str:
        """What will be written where, and what is free."""
        free = "what is free there is not known" if self.free is None else f"{_size(self.free)} free"
        told = ", ".join(f"{_size(need.expected)} for {need.what} in {_shown(need.place)}" for need in self.needs)
        return f"about {told} ({free})"

    @property
    def refusal(self) -> str | None:
        """The sentence on what cannot fit."""
        if self.free is None or self.least <= self.free:
            return None
        kinds = " and ".join(dict.fromkeys(need.what for need in self.needs))
        places = " and ".join(dict.fromkeys(_shown(need.place) for need in self.needs))
        instead = ", or ".join(INSTEAD[what] for what in dict.fromkeys(need.what for need in self.needs))
        return (
            f"{places}: {kinds} need {_size(self.least)} at least, and {_size(self.free)} are free; make room there, "
            f"or set {instead}."
        )

    @property
    def warning(self) -> str | None:
        """The sentence on what may not fit, or will hardly."""
        if self.free is None or self.refusal or self.expected <= TIGHT * self.free:
            return None
        places = " and ".join(dict.fromkeys(_shown(need.place) for need in self.needs))
        return (
            f"{places}: about {_size(self.expected)} will be written and {_size(self.free)} are free. Should the disk "
            "be full, the search ends, and the same command goes on when there is room."
        )


def check_space(plans: Sequence[Plan]) -> tuple[str, ...]:
    """What searches that begin or go on will write, and what is free, in sentences; none where that is nothing.

    Raises:
        Mistakes: it cannot fit, a sentence for each file system.
    """
    needs = disk_needs(plans)
    spaces = spaces_of(needs)
    raise_if_any([space.refusal for space in spaces if space.refusal])
    said = [f"Disk: {'; '.join(space.in_words for space in spaces)}."] if spaces else []
    return (*said, *(space.warning for space in spaces if space.warning), *limit_warnings(needs))


def spaces_of(needs: Sequence[Need]) -> list[Space]:
    """The needs of each file system, and what is free there."""
    systems = defaultdict[int | str, list[Need]](list)
    for need in needs:
        systems[need.place if "://" in need.place else os.stat(existing(Path(need.place))).st_dev].append(need)
    return [Space(needs=tuple(same), free=_free(same)) for same in systems.values()]


def limit_warnings(needs: Sequence[Need]) -> list[str]:
    """The sentences on images that take more than the cache is to keep."""
    images = [(Path(need.place), need.expected) for need in needs if need.what is What.IMAGES]
    return [
        f"{_shown(str(cache))}: the images take about {_size(size)}, and {_size(limit)} are to be kept there "
        "(HOLDOUT_CACHE_GB); what a search uses is never removed."
        for cache, size in images
        if size > (limit := limit_of(cache))
    ]


def _free(needs: Sequence[Need]) -> int | None:
    if "://" in needs[0].place:
        return None
    caches = {Path(need.place) for need in needs if need.what is What.IMAGES}
    idle = sum(store.size for cache in caches for store in stores_in(cache) if not is_used(store.path.with_suffix("")))
    return free_bytes(Path(needs[0].place)) + idle


def _shown(place: str) -> str:
    return without_password(place) if "://" in place else str(Path(place).absolute())


def _size(count: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"
