"""The search files and campaign files that come with the project."""

from importlib.resources import files
from pathlib import Path

from trainables.mistakes import Mistakes


def recipes() -> dict[str, Path]:
    """Every recipe by name."""
    return _shipped("recipes")


def campaigns() -> dict[str, Path]:
    """Every campaign by name."""
    return _shipped("campaigns")


def recipe_or_file(given: Path) -> Path:
    """The file ``given``, or the recipe of that name.

    Raises:
        Mistakes: there is neither.
    """
    return _found(given, "recipe", recipes())


def campaign_or_file(given: Path) -> Path:
    """The file ``given``, or the campaign of that name.

    Raises:
        Mistakes: there is neither.
    """
    return _found(given, "campaign", campaigns())


def _shipped(folder: str) -> dict[str, Path]:
    return {path.stem: path for path in sorted(Path(str(files("spaces") / folder)).glob("*.yaml"))}


def _found(given: Path, kind: str, known: dict[str, Path]) -> Path:
    if given.exists():
        return given
    if str(given) not in known:
        raise Mistakes(f"There is no file {str(given)!r} and no {kind} of that name; {kind}s are {', '.join(known)}.")
    return known[str(given)]
