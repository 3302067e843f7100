"""Which entries of a file were wrong and left out, so that a default stands in their stead."""

from dataclasses import dataclass

KeyPath = tuple[int | str, ...]
"""The keys, and in lists the indices, that lead to an entry."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The entries that were left out. Nothing is known of what the file will say there once it is mended."""

    paths: tuple[KeyPath, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.paths)

    def replaced(self, key: str) -> bool:
        """Whether the entry ``key``, such as ``training.lr``, or a section that holds it was left out."""
        path = tuple(key.split("."))
        return any(path[: len(left_out)] == left_out for left_out in self.paths)

    def touched(self, key: str) -> bool:
        """Whether the entry ``key``, a section that holds it, or a part of it was left out."""
        path = tuple(key.split("."))
        return self.replaced(key) or any(left_out[: len(path)] == path for left_out in self.paths)


NOTHING = LeftOut()
