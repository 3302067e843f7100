"""The ``ship`` key: packages of one's own that travel with a submitted search."""

import re
from typing import Annotated

from pydantic import AfterValidator

from trainables.mistakes import Mistakes

OURS = ("holdout", "search", "spaces", "trainables")


def _package(name: str) -> str:
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        raise Mistakes(f"{name!r} is no package's name; give it as Python imports it, such as mylab.")
    top = name.partition(".")[0]
    if top != name:
        raise Mistakes(f"{name} is a part of the package {top}; ship that.")
    if name in OURS:
        raise Mistakes(f"{name} is a package of Holdout's own, which travels anyway; rename yours.")
    return name


Ship = tuple[Annotated[str, AfterValidator(_package)], ...]
