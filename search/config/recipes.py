"""The search files, campaign files and tables of the papers that are shipped with the project."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from search.config.validation import ConfigSection, validate
from search.config.yaml_file import apply_settings, read_yaml
from search.packages import SPACES
from trainables.common.errors import InvalidInput, suggestion


def recipes() -> dict[str, Path]:
    return shipped("recipes")


def campaigns() -> dict[str, Path]:
    return shipped("campaigns")


def shipped_or_file(given: Path) -> Path:
    """Return the file ``given``, or the recipe or campaign of that name."""
    if given.exists() or given.is_symlink():  # a broken link is reported when it is read
        return given
    known = {**recipes(), **campaigns()}
    if str(given) in known:
        return known[str(given)]
    # Compared without their suffix, which would make any two files similar.
    nearby = {path.stem: str(path) for path in given.parent.glob("*") if path.suffix in (".yaml", ".yml")}
    hint = suggestion(given.stem, [*known, *nearby])
    for stem, path in nearby.items():
        hint = hint.replace(f" {stem}?", f" {path}?")
    raise InvalidInput(
        f"There is no file {str(given)!r} and no recipe or campaign of that name{hint}; the recipes are "
        f"{', '.join(recipes())}; the campaigns are {', '.join(campaigns())}."
    )


def is_campaign(content: Mapping[str, Any]) -> bool:
    """Return True if ``content`` is a campaign file, and not a search file."""
    return "base" in content or "vary" in content


def read_file(given: Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Read the search or campaign file ``given``, or the recipe or campaign of that name, and apply ``settings``.

    The entries of losses that the settings (``key.path=value``) remove from a search are removed too.
    """
    written = read_yaml(shipped_or_file(given))
    content = apply_settings(written, settings)
    return content if is_campaign(written) else of_its_losses(content, written)


def read_search(given: Path, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Read a search file or recipe as :func:`read_file` does, and refuse a campaign."""
    content = read_file(given, settings)
    if is_campaign(content):
        raise InvalidInput(
            f"{given} is a campaign of several searches; `holdout run {given}` runs it. Name a search file."
        )
    return content


def of_its_losses(content: dict[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``content`` without the spaces and trainings of losses that it dropped from ``written``, its base."""
    losses, before = content.get("losses"), written.get("losses")
    if not (isinstance(losses, list) and isinstance(before, list)):
        return content
    gone = [loss for loss in before if loss not in losses]
    kept = {
        section: {loss: entry for loss, entry in entries.items() if loss not in gone}
        for section in ("space", "training_by_loss")
        if isinstance(entries := content.get(section), dict)
    }
    return {**content, **kept}


def shipped(folder: str) -> dict[str, Path]:
    """Return the YAML files in ``folder`` of the package ``spaces``, by name."""
    return {path.stem: path for path in sorted((SPACES / folder).glob("*.yaml"))}


# The tables and figures of the papers, and the commands that reproduce them.


class PaperItem(ConfigSection):
    """One table or figure; ``conceptual`` is the reason why no command makes it.

    Otherwise ``small`` makes it in minutes on two cores, ``full`` in the paper's setting, and ``shown`` says where to
    find the result. In these shell lines ``DIR`` is the folder of a data set, and ``FILE`` one that is written.
    """

    item: str
    title: str
    small: str | None = None
    full: str | None = None
    shown: str | None = None
    conceptual: str | None = None


class Paper(ConfigSection):
    """A paper with all its tables and figures, in order."""

    paper: str
    items: tuple[PaperItem, ...] = Field(min_length=1)


def papers(name: str | None = None) -> Mapping[str, Paper]:
    """Return all papers by short name, or only the paper ``name``."""
    files = shipped("papers")
    if name is not None and name not in files:
        raise InvalidInput(f"{name} is not a paper{suggestion(name, files)}; choose one of {', '.join(files)}.")
    return {key: validate(Paper, read_yaml(file)).result() for key, file in files.items() if name in (None, key)}
