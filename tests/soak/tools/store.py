"""Checkpoint storage that refuses, is slow, or returns half a file."""

import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from pyftpdlib.handlers import FTPHandler

REFUSES, LAGS, HALF = "refuses", "lags", "gives half"
LAG_S = 2.0


class FaultyHandler(FTPHandler):  # type: ignore[misc]
    """Handler of an FTP connection; ``fault`` is the present fault of all connections."""

    fault: ClassVar[str | None] = None

    def ftp_STOR(self, file: str, mode: str = "w") -> Any:
        if self._is_refused():
            return None
        return super().ftp_STOR(file, mode)

    def ftp_RETR(self, file: str) -> Any:
        if self._is_refused():
            return None
        if FaultyHandler.fault == HALF:
            content = Path(file).read_bytes()
            with tempfile.NamedTemporaryFile() as half:
                half.write(content[: len(content) // 2])
                half.flush()
                return super().ftp_RETR(half.name)  # it opens the file before it returns
        return super().ftp_RETR(file)

    def _is_refused(self) -> bool:
        """Return True if the request is refused; a slow store delays the answer."""
        if FaultyHandler.fault == LAGS:
            time.sleep(LAG_S)
        if FaultyHandler.fault == REFUSES:
            self.respond("451 The store is out of order.")
            return True
        return False
