"""Put every package of a wheel below ``holdout``.

In the repository, and where it is installed as editable, ``search``, ``spaces`` and ``trainables`` are packages by
themselves. In site-packages they could overwrite packages of others, such as ``spaces``. So a wheel has them as
``holdout.search``, ``holdout.spaces`` and ``holdout.trainables``: their folders are moved, and imports of them and
import paths such as "search.engines.local:Local" begin with ``holdout.``.
"""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

MOVED = ("search", "spaces", "trainables")
NAMES = "|".join(MOVED)
FROM = re.compile(rf"^(\s*from )((?:{NAMES})(?:\.\w+)* import )", re.MULTILINE)
IMPORT = re.compile(rf"^\s*import (?:{NAMES})\b", re.MULTILINE)
IMPORT_PATH = re.compile(rf"(?<=\")((?:{NAMES})(?:\.\w+)*:[A-Za-z_])")


class BuildBelowHoldout(build_py):
    """Build the packages, then move them below ``holdout``."""

    def run(self) -> None:
        """Build."""
        super().run()
        if self.editable_mode:
            return
        holdout = Path(self.build_lib) / "holdout"
        for name in MOVED:
            shutil.rmtree(holdout / name, ignore_errors=True)  # of an earlier build
            (holdout.parent / name).rename(holdout / name)
        for path in holdout.rglob("*.py*"):
            if path.suffix in (".py", ".pyi"):
                path.write_text(below_holdout(path.read_text(), path))
        top_level = Path(self.get_finalized_command("egg_info").egg_info) / "top_level.txt"
        top_level.write_text("holdout\n")


def below_holdout(code: str, path: Path) -> str:
    """Return the code of the module at ``path`` with the new names of the moved packages.

    Raises:
        ValueError: it imports one of them as a whole.
    """
    if found := IMPORT.search(code):
        raise ValueError(f"{path}: {found[0]!r} binds a name that a wheel does not have; write `from … import …`.")
    return IMPORT_PATH.sub(r"holdout.\1", FROM.sub(r"\1holdout.\2", code))


setup(cmdclass={"build_py": BuildBelowHoldout})
