"""Parts by name: tables of lazily imported classes, and import paths of a user's own parts."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from trainables.mistakes import Mistakes, suggestion

# Names of a package that are imported when somebody asks for them, since their module imports torch.


def late_import(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of ``package``: every name of ``modules`` comes out of the module beside it."""

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return attribute


# Parts by name: tables whose rows are read without importing anything, and import paths of one's own parts.
#
# A row names where its part is, as ``module:Attribute``. The part is imported when it is used, so that a program that
# asks only for names and numbers does not wait seconds for torch.

_PATH = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*):(?P<attribute>[^\W\d]\w*(\.[^\W\d]\w*)*)")


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """A row of a table: ``path`` is where the part is imported from."""

    path: str


Part = TypeVar("Part")
Row = TypeVar("Row", bound=PartRow)


class PartTable(Mapping[str, Part], Generic[Part, Row]):
    """Parts of one ``kind`` by name; ``rows`` are what is known of them without importing them.

    ``table[name]`` imports the part, and so does ``table["module:Attribute"]`` with a part of one's own, which must be
    a subclass of what the import path ``base`` names. Iteration and ``in`` know the rows alone and import nothing.
    """

    def __init__(self, kind: str, rows: Mapping[str, Row], *, base: str | None = None) -> None:
        self.kind = kind
        self.rows: Mapping[str, Row] = MappingProxyType(dict(rows))
        self._base = base
        self._loaded: dict[str, Part] = {}

    def __getitem__(self, name: str) -> Part:
        """The part ``name``, a row's name or an import path.

        Raises:
            KeyError: a name that is neither.
            Mistakes: the import path leads to no part of this kind.
        """
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
        """What a part is called where people read: a row's name, or the name of one's own part, which is imported."""
        return name if name in self.rows else plain_name(self[name])

    def problems(self, key: str, name: str) -> list[str]:
        """The sentence on a ``name`` under ``key`` that is neither a row's nor an import path; nothing is imported."""
        if name in self.rows or is_own(name):
            return []
        return [
            f"{key} must be one of {', '.join(self.rows)}, or the import path of your own, such as "
            f"mylab.parts:Mine; it is {name!r}{suggestion(name, self.rows)}."
        ]


def is_own(name: object) -> bool:
    """Whether ``name`` is meant as an import path ``module:Attribute`` and not as a row's name."""
    return isinstance(name, str) and ":" in name


def plain_name(part: Any) -> str:
    """A part's ``name`` where it has one of its own, else the name of the class or function in snake case.

    >>> plain_name(PartTable)
    'part_table'
    """
    own = vars(part).get("name")
    if isinstance(own, str):
        return own
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", part.__name__)
    return words.lower()


def load_part(path: str, *, kind: str = "part", base: type | None = None) -> Any:
    """What the import path ``module:Attribute`` names.

    Args:
        path: as ``mylab.losses:CircleLoss``.
        kind: what it should be, as sentences call it: "loss".
        base: what a class has to derive from.

    Raises:
        Mistakes: a malformed path, no such module or attribute, a module that cannot be imported, or no subclass of
            ``base``.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise Mistakes(
            f"The {kind} {path!r} is no import path: give module:Attribute, such as mylab.parts:Mine, where "
            "mylab/parts.py defines Mine."
        )
    part: Any = _module(match["module"], path, kind)
    for name in match["attribute"].split("."):
        try:
            part = getattr(part, name)
        except AttributeError:
            hint = suggestion(name, [known for known in dir(part) if not known.startswith("_")])
            raise Mistakes(
                f"The {kind} {path!r} is not there: {match['module']} has no {name}{hint}. Mend the name after the "
                "colon, or define it there."
            ) from None
    if base is not None and not (isinstance(part, type) and issubclass(part, base)):
        raise Mistakes(
            f"The {kind} {path!r} must be a class that derives from {base.__module__}.{base.__name__}; it is "
            f"{part!r:.100}. Derive it, or name another attribute."
        )
    return part


def _module(name: str, path: str, kind: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise Mistakes(
                f"The {kind} {path!r} cannot be imported, for {name} needs the module {error.name}, which is not here: "
                "install it, or remove its import."
            ) from error
        raise Mistakes(
            f"The {kind} {path!r} is not there: no module {error.name} is found. Mend the name before the colon, or "
            "put the folder that holds it on PYTHONPATH."
        ) from None
    except (Exception, SystemExit) as error:  # somebody's module may raise anything
        raise Mistakes(
            f"The {kind} {path!r} cannot be imported: {name} raises {type(error).__name__}: {error}. Mend the module."
        ) from error
