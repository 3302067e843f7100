"""Many images looked at from outside, none of them decoded, in a bounded time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock, Thread

from trainables.data.dataset import Dataset
from trainables.data.decode import Unreadable, unreadable
from trainables.data.listing import listed

THREADS = 8  # a network's file system answers them side by side; more would take turns on the interpreter
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen of ``looked`` images of ``total``, for the rest of which ``seconds`` were too few."""

    looked: int
    total: int
    seconds: float
    damaged: tuple[Unreadable, ...]

    def sentence(self, classes: str) -> str | None:
        """What is wrong with the images of ``classes``, as in "test classes"; None where nothing is."""
        of = f"{self.total:,}"
        if self.looked < self.total:
            of = f"the {self.looked:,} of {self.total:,}"
        which = f"of {of} images of {classes}"
        if self.looked < self.total:
            which += f" that could be looked at in {self.seconds:.0f} s"
        if not self.damaged:
            return None if self.looked == self.total else f"None {which} looks damaged."
        shown = listed([f"{image.key} ({image.reason})" for image in self.damaged], "; ", shown=SHOWN)
        return f"{len(self.damaged):,} {which} {'looks' if len(self.damaged) == 1 else 'look'} damaged: {shown}."


def look_at(dataset: Dataset, keys: Sequence[str], *, seconds: float) -> Look:
    """Look at the images ``keys`` for so many seconds at most; a file system that hangs holds nobody up."""
    end = time.monotonic() + seconds
    found: dict[int, Unreadable | None] = {}
    waiting, lock = iter(enumerate(keys)), Lock()

    def work() -> None:
        while time.monotonic() < end:
            with lock:
                number, key = next(waiting, (-1, ""))
            if number < 0:
                return
            image = _look(dataset, key)
            with lock:
                found[number] = image

    threads = [Thread(target=work, daemon=True) for _ in range(min(THREADS, len(keys)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    with lock:
        seen = sorted(found.items())
    damaged = tuple(image for _, image in seen if image is not None)
    return Look(looked=len(seen), total=len(keys), seconds=seconds, damaged=damaged)


def _look(dataset: Dataset, key: str) -> Unreadable | None:
    try:
        damage = dataset.damage(key)
    except Exception as error:  # image decoders raise anything
        return unreadable(key, error)
    return None if damage is None else Unreadable(key=key, reason=damage)
