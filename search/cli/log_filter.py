"""What a search says in the log of its job, without what Ray says there: hundreds of lines when a machine dies."""

import re

_RAYS = re.compile(
    r"(\x1b\[\d+m)?\((pid=)?(raylet|gcs_server|autoscaler|log_monitor)\b[^)]*\)"  # of its own processes
    r"|(\S*\(\w+ pid=[^)]*\)\S* )?\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z] \d+ \d+\]"  # of its C++ in ours
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\t[A-Z]+ \S+\.py:\d+ -- "  # of its Python
    r"|\t\(\d\) "  # the further causes of what it says
    r"|Running entrypoint for job "
)
"""How its lines begin."""
_LOG_FOLLOWS = "Raylet logs:"
"""How the line ends after which it shows the end of a dead machine's log, indented, and then an empty line."""


class LogFilter:
    """Takes a log piece by piece, as it comes, and gives what is not Ray's; ``left_out`` counts Ray's lines.

    What workers say is the search's: Ray writes ``(TrainingTrial pid=…)`` before it.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._begun = ""
        self._in_raylet_log = False

    def take(self, text: str) -> str:
        """The search's lines that end in ``text``."""
        *lines, self._begun = (self._begun + text).split("\n")
        return "".join(f"{line}\n" for line in lines if self._is_own(line))

    def end(self) -> str:
        """The search's last line, where the log does not end with a line's end."""
        begun, self._begun = self._begun, ""
        return begun if begun and self._is_own(begun) else ""

    def _is_own(self, line: str) -> bool:
        is_own = not self._is_rays(line)
        self.left_out += not is_own
        return is_own

    def _is_rays(self, line: str) -> bool:
        if self._in_raylet_log and (not line or line.startswith("    ")):
            self._in_raylet_log = bool(line)
            return True
        is_rays = bool(_RAYS.match(line))
        self._in_raylet_log = is_rays and line.endswith(_LOG_FOLLOWS)
        return is_rays


def without_ray(log: str) -> tuple[str, int]:
    """The search's lines of a whole log, and how many of Ray's are left out."""
    lines = LogFilter()
    return lines.take(log) + lines.end(), lines.left_out
