"""A process in which faiss is not installed, so that torch searches neighbours."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trainables.metrics.gallery import import_faiss


@contextmanager
def without_faiss() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "faiss", None)
        import_faiss.cache_clear()
        yield
    import_faiss.cache_clear()
