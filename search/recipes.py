"""The search files that come with the project."""

from importlib.resources import files
from pathlib import Path

from trainables.mistakes import Mistakes


def recipes() -> dict[str, Path]:
    """Every recipe by name."""
    return {path.stem: path for path in sorted(Path(str(files("spaces") / "recipes")).glob("*.yaml"))}


def recipe_or_file(given: Path) -> Path:
    """The file ``given``, or the recipe of that name.

    Raises:
        Mistakes: there is neither.
    """
    if given.exists():
        return given
    known = recipes()
    if str(given) not in known:
        raise Mistakes(f"There is no file {str(given)!r} and no recipe of that name; recipes are {', '.join(known)}.")
    return known[str(given)]
