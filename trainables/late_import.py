"""Names of a package that are imported when somebody asks for them, since their module imports torch."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late_import(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of ``package``: every name of ``modules`` comes out of the module beside it."""

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    return attribute
