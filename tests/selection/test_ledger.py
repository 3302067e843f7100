"""The ledger of test openings: searches and images are identified by content, not by name."""

import json
import logging
from pathlib import Path

import pytest
from support.small_disk import small_disk

from search.selection.ledger import NAME, Fingerprint, Ledger, OpenedImages, Opening
from trainables.mistakes import Mistakes
from trainables.storage import DiskFull


def images(*classes: str) -> OpenedImages:
    """Return a test set with one image per letter of each class."""
    fingerprints: tuple[Fingerprint, ...] = tuple(tuple(letters) for letters in classes)
    return OpenedImages(digest=" ".join(sorted(classes)), classes=fingerprints)


def opened(
    ledger: Ledger,
    found: OpenedImages,
    *,
    names: str = "names",
    search: str = "one",
    selections: dict[str, str] | None = None,
    configurations: int = 2,
) -> Opening:
    selections = selections or {search: f"selection of {search}"}
    opening = ledger.open(
        test_digest=names,
        search=search,
        selections=selections,
        configurations=dict.fromkeys(selections, configurations),
        reason="a test",
    )
    return ledger.read(opening, found)


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


def test_an_equal_name_is_not_the_same_search(ledger: Ledger) -> None:
    opened(ledger, images("ab"), selections={"small": "first"})
    second = opened(ledger, images("ab"), selections={"small": "after the first was removed"})
    assert ledger.sentence(second) == "this test set: 2 openings by 2 searches, 4 configurations scored"


def test_other_names_for_the_same_images_are_recognised(ledger: Ledger) -> None:
    first = opened(ledger, images("ab", "cd"), names="as they were")
    again = opened(ledger, images("ab", "cd"), names="renamed", search="two")
    told = "2 of 2 of these classes were opened before (1 opening by 1 search, 2 configurations scored)"
    assert (ledger.before(first), ledger.before(again)) == (None, told)
    assert ledger.sentence(again) == "this test set: 2 openings by 2 searches, 4 configurations scored"


def test_another_runs_folder_is_recognised_and_a_lost_ledger_too(tmp_path: Path) -> None:
    opened(ledger_in(tmp_path / "runs"), images("ab", "cd"))
    elsewhere = ledger_in(tmp_path / "elsewhere")
    second = opened(elsewhere, images("ab", "cd"), search="two")
    assert elsewhere.sentence(second) == "this test set: 2 openings by 2 searches, 4 configurations scored"
    (tmp_path / "elsewhere" / "test_openings.jsonl").unlink()
    assert elsewhere.sentence(second) == "this test set: 2 openings by 2 searches, 4 configurations scored"


def test_one_class_fewer_is_told(ledger: Ledger) -> None:
    opened(ledger, images("ab", "cd", "ef"))
    fewer = opened(ledger, images("ab", "cd"), names="fewer", search="two")
    told = "2 of 2 of these classes were opened before (1 opening by 1 search, 2 configurations scored)"
    assert ledger.before(fewer) == told
    assert ledger.sentence(fewer) == f"this test set: 1 opening by 1 search, 2 configurations scored; {told}"
    more = opened(ledger, images("ab", "cd", "ef", "gh"), names="more", search="three")
    assert str(ledger.before(more)).startswith("3 of 4 of these classes were opened before (2 openings by 2 searches")


def test_a_class_that_lost_and_gained_images_is_told(ledger: Ledger) -> None:
    opened(ledger, images("abcd"))
    changed = opened(ledger, images("bcdz"), names="changed", search="two")
    assert str(ledger.before(changed)).startswith("1 of 1 of these classes were opened before")


def test_what_was_opened_later_or_is_other_images_is_not_told(ledger: Ledger) -> None:
    first = opened(ledger, images("ab", "cd"))
    other = opened(ledger, images("vw", "xy"), search="two")  # the same names
    opened(ledger, images("ab"), search="three")
    assert ledger.before(first) is None
    assert ledger.before(other) is None
    assert ledger.sentence(first) == "this test set: 1 opening by 1 search, 2 configurations scored"


def test_training_on_what_was_opened_is_told(ledger: Ledger) -> None:
    opened(ledger, images("ab", "cd"))
    assert ledger.opened_among([("c", "x"), ("y",), ("z",)]) == (
        "1 of 3 classes (1 opening by 1 search, 2 configurations scored)"
    )
    assert ledger.opened_among([("x",), ("y",)]) is None


def test_an_attempt_goes_on_with_the_images_that_it_found(ledger: Ledger) -> None:
    opening = opened(ledger, images("ab"))
    (again,) = ledger.openings()
    assert again == opening
    assert ledger.read(again, images("ab")) == again
    with pytest.raises(Mistakes, match="The test images are not those that one opened at 20"):
        ledger.read(again, images("cd"))


def test_a_line_stands_before_any_image_is_read(ledger: Ledger, tmp_path: Path, state: Path) -> None:
    ledger.open(test_digest="t", search="one", selections={"one": "s"}, configurations={"one": 1}, reason="a test")
    for path in (tmp_path / "runs", state / "holdout"):
        (line,) = (path / "test_openings.jsonl").read_text().splitlines()
        assert json.loads(line)["search"] == "one"
    (opening,) = ledger.openings()
    assert opening.images is None
    assert ledger.sentence(opening) == "this test set: 1 opening by 1 search, 1 configuration scored"
    assert ledger.sentence_by_names("t") == (
        "test sealed; classes of these names: 1 opening by 1 search, 1 configuration scored"
    )


def test_a_state_folder_that_cannot_be_used_is_a_warning(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        opening = opened(ledger, images("ab"))
    assert "the user's state folder cannot be written" in caplog.text
    assert ledger.sentence(opening) == "this test set: 1 opening by 1 search, 2 configurations scored"


def test_a_damaged_ledger_is_one_sentence_and_the_user_s_a_warning(
    ledger: Ledger, tmp_path: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opening = opened(ledger, images("ab"))
    (state / "holdout" / "test_openings.jsonl").write_text("{half a li")
    with caplog.at_level(logging.WARNING):
        assert ledger.openings() == [opening]
    assert "it is ignored" in caplog.text
    (tmp_path / "runs" / "test_openings.jsonl").write_text("{half a li")
    with pytest.raises(Mistakes, match=r"Line 1 of the ledger of test openings, .* is damaged"):
        ledger.openings()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """The file system allocates pages, so some lines would be written partially."""
    with small_disk(tmp_path / "disk") as disk:
        path = disk.path / NAME
        ledger = Ledger(path)

        def open_next(length: int) -> None:
            selections = {"s": "x" * length}
            ledger.open(test_digest="d", search="s", selections=selections, configurations={"s": 1}, reason="r")

        open_next(1)
        disk.leave(0)
        before = path.read_bytes()
        with pytest.raises(DiskFull, match=f"no space left for {path}, where 0.0 MB are free"):
            open_next(5000)
        assert path.read_bytes() == before
        open_next(10)  # there is space in the page
        disk.clear()
        open_next(5000)
        assert len(ledger.openings()) == 3
