"""A search's report so far, made again only where its records changed."""

import hashlib
import threading
from pathlib import Path
from typing import Any

from search.pages.document.report import environment
from search.pages.live.types import SectionSoFar
from search.pages.search_report import search_report
from search.plan.stored import StoredSearch
from search.study.names import Stage


class ReportsSoFar:
    """The sections of each search's report, kept until its records say something else.

    One is made at a time: Matplotlib's settings are its process's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Any, tuple[SectionSoFar, ...]]] = {}

    def of(self, stored: StoredSearch) -> tuple[SectionSoFar, ...]:
        """The sections of ``stored``.

        Raises:
            Mistakes: it has no studies yet, or its records cannot be read.
        """
        with self._lock:
            state = _state(stored)
            before = self._kept.get(stored.name)
            if before is None or before[0] != state:
                before = self._kept[stored.name] = (state, _sections(stored))
            return before[1]


def _state(stored: StoredSearch) -> Any:
    """What changes with every trial that ended and every file that was written."""
    tallies = [stored.tally(loss, stage) for stage in Stage for loss in stored.losses]
    files = (stored.folder.summary, stored.folder.selection, stored.folder.test)
    return [(dict(tally.states), tally.best) for tally in tallies], list(map(_written, files)), stored.folder.driver()


def _written(file: Path) -> float | None:
    return file.stat().st_mtime if file.exists() else None


def _sections(stored: StoredSearch) -> tuple[SectionSoFar, ...]:
    macro = environment().get_template("section.html").module.section  # type: ignore[attr-defined]
    found = []
    for part in search_report([stored]).sections:
        html = str(macro(part))
        digest = hashlib.sha256(html.encode()).hexdigest()
        found.append(SectionSoFar(name=part.name, title=part.title, digest=digest, html=html))
    return tuple(found)
