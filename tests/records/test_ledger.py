"""The ledger of test openings: searches and images are identified by content, not by name."""

import itertools
import json
import logging
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, strategies as st
from support.forks import forked
from support.small_disk import small_disk

from search.records.ledger import NAME, Ledger, Opening
from search.records.ledger_file import ImageSet
from trainables.common.errors import InvalidInput
from trainables.common.storage import DiskFull


def images(*classes: str) -> ImageSet:
    """Return a test set with an image per letter of each class."""
    return ImageSet.of([f"{ord(letter):016x}" for letter in name] for name in classes)


def begun(
    ledger: Ledger,
    *,
    names: str = "names",
    search: str = "one",
    selections: dict[str, str] | None = None,
    configurations: int = 2,
) -> Opening:
    """Return an opening before any image is read."""
    selections = selections or {search: f"selection of {search}"}
    numbers = dict.fromkeys(selections, configurations)
    return ledger.open(
        test_digest=names, search=search, selections=selections, configurations=numbers, studies={}, reason="a test"
    )


def opened(ledger: Ledger, found: ImageSet, **of_opening: Any) -> Opening:
    return ledger.read(begun(ledger, **of_opening), found)


def ledger_in(folder: Path) -> Ledger:
    return Ledger(folder / "test_openings.jsonl")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return ledger_in(tmp_path / "runs")


def test_openings_searches_and_configurations_are_counted(ledger: Ledger) -> None:
    assert ledger.openings() == []
    assert ledger.sentence_by_names("names") == "test sealed"
    first = opened(ledger, images("ab", "cd"), search="one")
    opened(ledger, images("ab", "cd"), search="two", configurations=4)
    opened(ledger, images("ab", "cd"), search="two", configurations=4)  # again: no further configurations
    lot = opened(ledger, images("xy"), search="lot", selections={"three": "s3", "four": "s4"}, configurations=1)
    assert ledger.of_selection("selection of one") == [first]
    assert ledger.of_selection("s3") == ledger.of_selection("s4") == [lot]
    assert ledger.sentence(first) == "this test set: 3 openings by 2 searches, 6 configurations scored"
    assert ledger.sentence(lot) == "this test set: 1 opening by 2 searches, 2 configurations scored"
    opened(ledger, images("vw"), selections={"small": "first"})
    again = opened(ledger, images("vw"), selections={"small": "after the first was removed"})
    assert ledger.sentence(again) == "this test set: 2 openings by 2 searches, 4 configurations scored"


def test_what_was_opened_later_or_is_other_images_is_not_told(ledger: Ledger) -> None:
    first = opened(ledger, images("ab", "cd"))
    other = opened(ledger, images("vw", "xy"), search="two")  # the same names
    opened(ledger, images("ab"), search="three")
    assert ledger.before(first) is None
    assert ledger.before(other) is None
    assert ledger.sentence(first) == "this test set: 1 opening by 1 search, 2 configurations scored"


def test_an_attempt_goes_on_with_the_images_that_it_found(ledger: Ledger) -> None:
    opening = opened(ledger, images("ab"))
    (again,) = ledger.openings()
    assert again == opening
    assert ledger.read(again, images("ab")) == again
    with pytest.raises(InvalidInput, match="The test items are not those that one opened at 20"):
        ledger.read(again, images("cd"))


def test_a_line_stands_before_any_image_is_read(ledger: Ledger, tmp_path: Path, state: Path) -> None:
    begun(ledger, names="t", configurations=1)
    for path in (tmp_path / "runs", state / "holdout"):
        (line,) = (path / "test_openings.jsonl").read_text().splitlines()
        assert json.loads(line)["search"] == "one"
    (opening,) = ledger.openings()
    assert opening.images is None
    assert ledger.sentence(opening) == "this test set: 1 opening by 1 search, 1 configuration scored"
    assert ledger.sentence_by_names("t") == (
        "test sealed; classes of these names: 1 opening by 1 search, 1 configuration scored"
    )


def test_an_opening_without_the_state_folder_is_after_those_in_it(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened(ledger_in(tmp_path / "elsewhere"), images("abx"))
    with monkeypatch.context() as without, caplog.at_level(logging.WARNING):
        without.setenv("XDG_STATE_HOME", os.devnull)
        second = opened(ledger, images("ab"), search="two")
        assert "the user's state folder cannot be written" in caplog.text
        assert ledger.before(second) is None
        assert ledger.sentence(second) == "this test set: 1 opening by 1 search, 2 configurations scored"
    assert str(ledger.before(second)).startswith("1 of 1 of these classes were opened before")


def test_images_that_an_earlier_version_wrote_are_known(ledger: Ledger) -> None:
    """Its files have a second number for each image."""
    found = images("ab", "cd")
    earlier = ImageSet.from_bytes(found.to_bytes() + bytes(8 * len(found)))
    assert earlier.digest == found.digest
    assert earlier.known_images(found).all()


def test_a_damaged_ledger_is_one_sentence_and_the_user_s_a_warning(
    ledger: Ledger, tmp_path: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opening = opened(ledger, images("ab"))
    (state / "holdout" / "test_openings.jsonl").write_text("{half a li")
    with caplog.at_level(logging.WARNING):
        assert ledger.openings() == [opening]
    assert "it is ignored" in caplog.text
    (tmp_path / "runs" / "test_openings.jsonl").write_text("{half a li")
    with pytest.raises(InvalidInput, match=r"Line 1 of the ledger of test openings, .* is damaged"):
        ledger.openings()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """The file system allocates pages, so some lines would be written partially."""
    with small_disk(tmp_path / "disk") as disk:
        path = disk.path / NAME
        ledger = Ledger(path)
        begun(ledger)
        disk.leave(0)
        before = path.read_bytes()
        with pytest.raises(DiskFull, match=f"no space left for {path}, where 0.0 MB are free"):
            begun(ledger, selections={"one": "x" * 5000})
        assert path.read_bytes() == before
        disk.clear()
        begun(ledger)
        ids = [opening.id for opening in ledger.openings()]
        assert len(ids) == 3, "the one that did not fit is in the user's ledger, and is copied from there"
        assert len(path.read_text().splitlines()) == 3


def write_until_killed(_: Connection, runs: Path, writes: int) -> None:
    written, flush = itertools.count(1), os.fsync

    def fsync(file: int) -> None:
        flush(file)
        if next(written) == writes:
            os.kill(os.getpid(), signal.SIGKILL)

    with mock.patch("os.fsync", fsync):
        opened(ledger_in(runs), images("ab", "cd"), search="one")


@pytest.mark.parametrize("writes", [4, 6])
def test_a_kill_between_the_two_files_hides_nothing(writes: int, ledger: Ledger, tmp_path: Path, state: Path) -> None:
    """The first two writes are of the opening, then come the images and their line, each to the user's file first."""
    process, _ = forked(write_until_killed, tmp_path / "runs", writes)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    elsewhere = ledger_in(tmp_path / "elsewhere")
    second = opened(elsewhere, images("ab", "cd"), search="two")
    assert elsewhere.sentence(second) == "this test set: 2 openings by 2 searches, 4 configurations scored"
    assert ledger.sentence(second) == elsewhere.sentence(second)
    ledger.catch_up()
    for folder in (tmp_path / "runs", tmp_path / "elsewhere", state / "holdout"):
        assert len((folder / NAME).read_text().splitlines()) == 4
        assert len([*(folder / "test_openings.images").iterdir()]) == 1
    assert not [*ledger.broken_links(), *elsewhere.broken_links()]


def test_a_user_s_ledger_that_was_lost_is_filled_again(ledger: Ledger, tmp_path: Path, state: Path) -> None:
    elsewhere = ledger_in(tmp_path / "elsewhere")
    opened(ledger, images("ab", "cd"))
    shutil.rmtree(state / "holdout")
    ledger.catch_up()
    second = opened(elsewhere, images("abx", "cd"), search="two")
    assert str(elsewhere.before(second)).startswith("2 of 2 of these classes were opened before")


def test_a_runs_folder_that_cannot_be_written_is_read(
    ledger: Ledger, tmp_path: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opening = opened(ledger, images("ab"))
    (state / "holdout" / NAME).unlink()
    (state / "holdout" / f"{NAME}.lock").unlink(missing_ok=True)
    (tmp_path / "runs" / f"{NAME}.lock").unlink(missing_ok=True)
    (tmp_path / "runs" / f"{NAME}.lock").mkdir()  # for root, too, no lock can be taken
    with caplog.at_level(logging.WARNING):
        ledger.catch_up()
    assert f"Openings elsewhere are not copied to {tmp_path / 'runs' / NAME}" in caplog.text
    assert ledger.openings() == [opening]


def test_a_clock_that_was_set_back_hides_no_opening(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(ledger, images("ab", "cd"))
    monkeypatch.setattr("time.gmtime", partial(time.gmtime, 0))
    second = opened(ledger, images("cd", "ef"), search="two")
    assert second.time.startswith("1970")
    assert [opening.search for opening in ledger.openings()] == ["one", "two"]
    assert str(ledger.before(second)).startswith("1 of 2 of these classes were opened before")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: [lines[0].replace("a test", "my test"), *lines[1:]], "Line 1 .* was changed"),
        (lambda lines: [*lines[:3], lines[3].replace("a test", "my test")], "Line 4 .* was changed"),
        (lambda lines: lines[1:], "Line 1 .* was not written after the line before"),
        (lambda lines: [*lines[:1], *lines[2:]], "Line 2 .* was not written after the line before"),
        (lambda lines: [*lines[:2], lines[3], lines[2]], "Line 3 .* was not written after the line before"),
    ],
    ids=["changed", "changed last", "first removed", "removed", "moved"],
)
def test_each_change_of_the_lines_breaks_the_chain(
    ledger: Ledger, tmp_path: Path, change: Callable[[list[str]], list[str]], says: str
) -> None:
    opened(ledger, images("ab"))
    begun(ledger, search="two")
    opened(ledger_in(tmp_path / "elsewhere"), images("cd"), search="elsewhere")
    begun(ledger, search="two")
    assert not [*ledger.broken_links()]
    path = tmp_path / "runs" / NAME
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(change(lines[:4])))
    sentence, *_ = ledger.broken_links()
    assert re.match(says, sentence)


def test_images_that_were_removed_on_purpose_do_not_hide_the_rest(ledger: Ledger) -> None:
    """No choice of images is remembered: whichever are dropped, the others are known."""
    opened(ledger, images("abcdefghij", "klmnopqrst"))
    for number, (first, second) in enumerate((("j", "t"), ("a", "k"), ("f", "p"))):
        fewer = opened(ledger, images(first, second), names=f"fewer {number}", search=f"fewer {number}")
        assert str(ledger.before(fewer)).startswith("2 of 2 of these classes were opened before")
    changed = opened(ledger, images("bcdz"), names="changed", search="two")
    assert str(ledger.before(changed)).startswith("1 of 1 of these classes were opened before"), "lost and gained"


def test_damaged_images_are_one_sentence_unless_the_user_s_folder_has_them(
    ledger: Ledger, tmp_path: Path, state: Path
) -> None:
    opened(ledger, images("ab", "cd"))
    fewer = opened(ledger, images("ab"), search="two")
    for path in (tmp_path / "runs" / "test_openings.images").iterdir():
        path.write_bytes(b"")
    assert str(ledger.before(fewer)).startswith("1 of 1 of these classes")
    for path in (state / "holdout" / "test_openings.images").iterdir():
        path.write_bytes(b"")
    with pytest.raises(
        InvalidInput, match=r"The images of an opened test set, .* are missing or damaged; restore the file"
    ):
        ledger.before(fewer)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=5))
def test_images_with_an_equal_one_are_counted(classes: list[list[int]]) -> None:
    images = [image for of_class in classes for image in of_class]
    found = ImageSet.of([f"{image:016x}" for image in of_class] for of_class in classes)
    assert found.copies == sum(images.count(image) > 1 for image in images)
