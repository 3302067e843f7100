"""Parts by name: tables of lazily imported parts, and import paths of user-defined ones.

A table row holds an import path ``module:Attribute``. The part is imported on first use, so that a program that needs
only names and numbers does not wait seconds for torch.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from trainables.common.errors import InvalidInput, suggestion
from trainables.common.process import Exited, contained

OURS = __name__.removesuffix("common.part_tables")
"""How the names of this package's modules begin: ``trainables.``, or ``holdout.trainables.`` in an installed wheel."""

_PATH = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<attribute>[^\W\d]\w*(\.[^\W\d]\w*)*)")


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """A row of a table. ``path`` is the part's import path."""

    path: str


Part = TypeVar("Part")
Row = TypeVar("Row", bound=PartRow)


class PartTable(Mapping[str, Part], Generic[Part, Row]):
    """Parts of one ``kind`` by name. ``rows`` hold facts that are known without importing the parts.

    ``table[name]`` imports the part. ``table["module:Attribute"]`` imports a user-defined part, which must be a
    subclass of the class at the import path ``base``, if one is given. Iteration and ``in`` cover the rows only and
    import nothing.
    """

    def __init__(self, kind: str, rows: Mapping[str, Row], *, base: str | None = None) -> None:
        self.kind = kind
        self.rows: Mapping[str, Row] = MappingProxyType(dict(rows))
        self._base = base
        self._loaded: dict[str, Part] = {}

    def __getitem__(self, name: str) -> Part:
        """Return the part ``name``, a row's name or an import path; raise ``KeyError`` if it is neither."""
        if name not in self._loaded:
            if name in self.rows:
                self._loaded[name] = load_part(self.rows[name].path, kind=self.kind)
            elif is_own(name):
                base = load_part(self._base) if self._base else None
                self._loaded[name] = load_part(name, kind=self.kind, base=base)
            else:
                raise KeyError(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def plain_name(self, name: str) -> str:
        """Return the display name of a part: a row's name, or that of a user-defined part, which is imported."""
        return name if name in self.rows else plain_name(self[name])


def is_own(name: object) -> bool:
    """Return True if ``name`` is an import path ``module:Attribute`` rather than a row's name."""
    return isinstance(name, str) and ":" in name


def is_import_path(text: str) -> bool:
    """Return True if :func:`load_part` would import ``text``."""
    return _PATH.fullmatch(text) is not None


def plain_name(part: Any) -> str:
    """Return the attribute ``name`` that a part itself defines, else its class or function name in snake case.

    >>> plain_name(PartTable)
    'part_table'
    """
    own = vars(part).get("name")
    if isinstance(own, str):
        return own
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", part.__name__)
    return words.lower()


def load_part(path: str, *, kind: str = "part", base: type | None = None) -> Any:
    """Import the object at ``path``, an import path ``module:Attribute``.

    Args:
        path: for example ``mylab.losses:CircleLoss``.
        kind: the kind of part, used in error sentences: "loss".
        base: the class that the part must derive from.

    Raises:
        InvalidInput: there is no such object, it cannot be imported, or is not a subclass of ``base``.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise InvalidInput(
            f"The {kind} {path!r} is not an import path: give module:Attribute, such as mylab.parts:Mine, where "
            "mylab/parts.py defines Mine."
        )
    part: Any = _module(match["module"], path, kind)
    for name in match["attribute"].split("."):
        try:
            part = getattr(part, name)
        except AttributeError:
            hint = suggestion(name, [known for known in dir(part) if not known.startswith("_")])
            raise InvalidInput(
                f"The {kind} {path!r} does not exist: {match['module']} has no {name}{hint}. Correct the name after "
                "the colon, or define it there."
            ) from None
    if base is not None and not (isinstance(part, type) and issubclass(part, base)):
        is_ours = base.__module__.partition(".")[0] in ("holdout", "search", "trainables")
        module = "holdout.parts" if is_ours else base.__module__
        raise InvalidInput(
            f"The {kind} {path!r} must be a class that derives from {module}.{base.__name__}; it is {part!r:.100}. "
            f"Derive it{getattr(base, 'to_derive', '')}, or name another attribute."
        )
    return part


def _module(name: str, path: str, kind: str) -> Any:
    if module := sys.modules.get(name):
        return module
    try:
        with contained():
            return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InvalidInput(
                f"The {kind} {path!r} cannot be imported: {name} needs the module {error.name}, which is not "
                "installed. Install it, or remove the import."
            ) from error
        raise InvalidInput(
            f"The {kind} {path!r} does not exist: no module {error.name} is found. Correct the name before the colon, "
            "or put the folder that contains it on PYTHONPATH."
        ) from None
    except Exception as error:  # a user's module may raise anything
        cause = error.__cause__ if isinstance(error, Exited) else error
        raise InvalidInput(
            f"The {kind} {path!r} cannot be imported: {name} raises {type(cause).__name__}: {cause}. Fix the module."
        ) from error
