"""The log of a search's job, without Ray's own lines: hundreds of them if a machine dies."""

import re

_RAYS = re.compile(
    r"(\x1b\[\d+m)?\((pid=)?(raylet|gcs_server|autoscaler|log_monitor)\b[^)]*\)"  # from its processes
    r"|(\S*\(\w+ pid=[^)]*\)\S* )?\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z] \d+ \d+\]"  # from its C++ in our processes
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\t[A-Z]+ \S+\.py:\d+ -- "  # from its Python
    r"|\t\(\d\) "  # further causes of a message
    r"|Running entrypoint for job "
)
"""The beginnings of Ray's lines."""
_LOG_FOLLOWS = "Raylet logs:"
"""The end of the line before the last log lines of a dead machine, which are indented and end with an empty line."""


class LogFilter:
    """Filter that removes Ray's own lines from a log that arrives in pieces; ``left_out`` counts them.

    Lines of workers, which Ray prefixes with ``(TrainingTrial pid=…)``, are the search's.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self._begun = ""
        self._in_raylet_log = False

    def take(self, text: str) -> str:
        """Return the search's lines that ``text`` completes."""
        *lines, self._begun = (self._begun + text).split("\n")
        return "".join(f"{line}\n" for line in lines if self._is_own(line))

    def end(self) -> str:
        """Return the search's last line, if the log does not end with a newline."""
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
