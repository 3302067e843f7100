"""Unknown names get a suggestion, also from another section of the file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from search.config.recipes import read_file, read_search
from trainables.errors import InvalidInput, suggestion


def refused(read: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as caught:
        read()
    return str(caught.value)


def test_an_unknown_recipe_or_file_is_answered_with_the_nearest(tmp_path: Path) -> None:
    assert "(did you mean quickstart?)" in refused(lambda: read_search(Path("quickstrt")))
    assert "(did you mean mpa-cub200?)" in refused(lambda: read_search(Path("mpa_cub200")))
    (tmp_path / "birds.yaml").write_text("name: birds")
    said = refused(lambda: read_search(tmp_path / "bird.yaml"))
    assert f"(did you mean {tmp_path / 'birds.yaml'}?)" in said
    assert "did you mean" in refused(lambda: read_file(Path("mpa-loses")))


def test_a_hint_names_all_that_fit_equally() -> None:
    assert suggestion("k", ["a.k", "b.k", "c"]) == " (did you mean a.k or b.k?)"
    assert suggestion("x", ["a", "b"]) == ""
    for name in ("pmp", "pn", "pnpp", "npp"):  # one letter or the order differs
        assert suggestion(name, ["pnp", "uni"]) == " (did you mean pnp?)"
    assert suggestion("nix", ["pnp", "uni"]) == ""
