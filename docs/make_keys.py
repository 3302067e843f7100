"""The page of all keys of a search file, `docs/keys.md`, made from the classes by `make keys`."""

from collections.abc import Iterator
from pathlib import Path

from search.config.keys import SECTION, Key, keys_of
from search.config.search_config import SearchConfig

PAGE = Path(__file__).parent / "keys.md"

HEAD = """\
# Keys of a search file

Made by `make keys` from the classes that read a search file; `holdout keys --all` prints the same. A key that
is not listed here is an error. Examples are YAML; `--set training.lr=1e-3` sets the same on the command line.
[Searches](searches.md) explains how the keys work together.
"""


def keys_page() -> str:
    """Return the page: the keys at the top level first, then each section."""
    keys = list(keys_of(SearchConfig))
    sections = [key for key in keys if key.type == SECTION and "." not in key.name]
    top = [key for key in keys if key.type != SECTION and "." not in key.name]
    parts = [HEAD, "## The top level\n", *_table(top)]
    for section in sections:
        within = [key for key in keys if key.name.startswith(f"{section.name}.")]
        parts += [f"\n## {section.name}\n\n{section.does}\n", *_table(within, section.name)]
    return "\n".join(parts) + "\n"


def _table(keys: list[Key], section: str = "") -> Iterator[str]:
    yield "| key | value | default | what it does | example |\n|---|---|---|---|---|"
    for key in keys:
        default = "required" if key.default is None else f"`{key.default}`" if key.default else ""
        cells = (f"`{key.name.removeprefix(f'{section}.')}`", key.value, default, key.does, f"`{key.in_file}`")
        yield (
            "| " + " | ".join(cell.replace("|", "\\|") for cell in (cells if key.example else (*cells[:4], ""))) + " |"
        )


if __name__ == "__main__":
    PAGE.write_text(keys_page())
