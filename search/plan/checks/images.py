"""Unreadable images, looked for in a bounded time."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as OutOfTime

from search.config.search_config import SearchConfig
from search.plan.checks.data import SplitClasses
from search.plan.checks.findings import Findings
from trainables.data import Dataset
from trainables.data.listing import listed

LOOK_S = 5
DRAWN = "glyphs"
"""A data set that is drawn and not read."""


def check_images_readable(found: Findings, config: SearchConfig, data: SplitClasses) -> None:
    """The training half's images can be read, as far as there is time to look.

    Decoding finds the same when the search begins. This is for a search that cannot begin yet, so that its user
    mends everything at once. Images of test classes are not opened.
    """
    if config.dataset.name != DRAWN:
        half = (*data.split.train, *data.split.validation)
        keys = [key for name in half for key in data.classes[name]]
        found.add(unreadable_images(config.dataset.source, keys, seconds=LOOK_S))


def unreadable_images(dataset: Dataset, keys: Sequence[str], *, seconds: float) -> list[str]:
    """The sentence on those of the images ``keys`` that cannot be read, among those read within ``seconds``."""
    end = time.monotonic() + seconds
    looked = 0
    unreadable: list[str] = []
    pool = ThreadPoolExecutor(os.cpu_count() or 1)  # Pillow decodes without holding the interpreter
    try:
        jobs: list[Future[None]] = [pool.submit(_read, dataset, key) for key in keys]
        for key, job in zip(keys, jobs, strict=True):
            try:
                job.result(timeout=max(0.0, end - time.monotonic()))
            except OutOfTime:
                if not job.done():
                    break
                unreadable.append(f"{key} (timed out)")
            except Exception as error:  # image decoders raise anything
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                unreadable.append(f"{key} ({reason})")
            looked += 1
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if not unreadable:
        return []
    of = f"{looked}" if looked == len(keys) else f"the first {looked} of {len(keys)}"
    return [f"{len(unreadable)} of {of} images cannot be read: {listed(unreadable, '; ')}. Replace or remove them."]


def _read(dataset: Dataset, key: str) -> None:
    dataset.read(key)  # without what it gives: a thousand images would fill the memory
