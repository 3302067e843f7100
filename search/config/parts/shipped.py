"""The packages of one's own that travel with a submitted search."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from trainables.mistakes import raise_if_any


def shipped_packages(names: Sequence[str]) -> dict[str, Path]:
    """Where each package or module lies on this machine, by name.

    Raises:
        Mistakes: one is not found, or is no folder or file that could be copied.
    """
    found, mistakes = {}, []
    for name in names:
        path = _path(find_spec(name)) if name not in sys.builtin_module_names else None
        if path is None:
            mistakes.append(
                f"ship: no package {name} is found here; mend the name, or put the folder that holds it on PYTHONPATH."
            )
        else:
            found[name] = path
    raise_if_any(mistakes)
    return found


def _path(spec: ModuleSpec | None) -> Path | None:
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin and spec.has_location else None
