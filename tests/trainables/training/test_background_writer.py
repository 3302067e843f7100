"""Background jobs run one at a time, in order, and their errors are raised by the next call."""

import threading

import pytest

from trainables.training.checkpoints import BackgroundWriter


def test_the_next_job_waits_for_the_one_under_way() -> None:
    writer, may_end = BackgroundWriter(), threading.Event()
    done: list[int] = []

    def slow() -> None:
        assert may_end.wait(60)
        done.append(1)

    writer.start(slow)
    assert done == []  # starting a job does not wait for it
    threading.Timer(0.2, may_end.set).start()
    writer.start(lambda: done.append(2))
    assert done[0] == 1
    writer.wait()
    assert done == [1, 2]
    writer.wait()


def test_an_error_is_raised_once_where_somebody_waits() -> None:
    writer = BackgroundWriter()
    done: list[int] = []

    def full() -> None:
        raise OSError(28, "No space left on device")

    writer.start(full)
    with pytest.raises(OSError, match="No space left"):
        writer.start(lambda: done.append(1))
    assert done == []
    writer.start(full)
    with pytest.raises(OSError, match="No space left"):
        writer.wait()
    writer.start(lambda: done.append(2))
    writer.wait()
    assert done == [2]
