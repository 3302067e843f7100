"""Paths that people write differently from the disk: in another Unicode form or case, or with backslashes."""

import os
import unicodedata
from pathlib import Path

from trainables.errors import InvalidInput


def _alike(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).rstrip()


class Folders:
    """The names in folders, each listed once."""

    def __init__(self) -> None:
        self._names: dict[Path, dict[str, list[str]]] = {}

    def _alike_in(self, folder: Path, name: str) -> list[str]:
        if folder not in self._names:
            self._names[folder] = {}
            for entry in os.listdir(folder) if folder.is_dir() else ():
                self._names[folder].setdefault(_alike(entry), []).append(entry)
        found = self._names[folder].get(_alike(name), [])
        return [name] if name in found else found

    def meant(self, root: Path, path: str) -> str | None:
        """Return the path below ``root`` that ``path`` can only mean; None if it means none or several."""
        for parts in (path.split("/"), path.replace("\\", "/").split("/")):
            folder, found = root, list[str]()
            for part in parts:
                names = [part] if part in ("", ".", "..") else self._alike_in(folder, part)
                if len(names) != 1:
                    break
                found.append(names[0])
                folder /= names[0]
            else:
                return os.path.normpath("/".join(found))
        return None


def as_on_disk(path: str | os.PathLike[str]) -> Path:
    """Return ``path``, or where there is none the path that it can only mean."""
    given = Path(path)
    if given.exists():
        return given
    found = Folders().meant(Path("/"), os.path.abspath(given).lstrip("/"))
    return given if found is None else Path("/", found)


def check_file(file: str | os.PathLike[str] | None, what: str) -> Path:
    """Return the path of the file that ``dataset.file`` names; raise :class:`InvalidInput`, to give ``what``."""
    if file is None:
        raise InvalidInput(f"dataset.file is missing: give {what}.")
    found = as_on_disk(file)
    if not found.is_file():
        problem = "is not a file" if found.exists() else "does not exist"
        raise InvalidInput(f"dataset.file is {str(file)!r}, which {problem}. Give {what}.")
    return found
