"""The download of published weights, which only `holdout backbones NAME --download` begins."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from http import HTTPStatus
from pathlib import Path
from typing import IO
from urllib.request import Request, urlopen

import filelock

from trainables.errors import Failure
from trainables.models.backbones import ON_HUB, Published
from trainables.models.weights import weights_path


def download(weights: Published, shown: Callable[[IO[bytes], int], AbstractContextManager[IO[bytes]]]) -> Path:
    """Download published weights unless they are here, and return their file; what was interrupted is resumed.

    ``shown`` shows how much of a file of so many bytes is read, as :func:`rich.progress.wrap_file`.

    Raises:
        Failure: they cannot be downloaded, or their SHA-256 is not that in the file's name, as torch.hub gives it.
    """
    path = weights_path(weights)
    if path.is_file():
        return path
    try:
        if weights.hub is not None:
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(weights.hub, ON_HUB))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        with filelock.FileLock(f"{part}.lock", timeout=0), part.open("ab+") as file:  # torch.hub does not resume
            start = max(file.tell() - 1, 0)  # the last byte again: no server sends the rest of a whole file
            asked = Request(weights.address, headers={"User-Agent": "holdout", "Range": f"bytes={start}-"})
            with urlopen(asked, timeout=60) as answer, shown(answer, size := answer.length) as content:
                file.truncate(start := start if answer.status == HTTPStatus.PARTIAL_CONTENT else 0)
                shutil.copyfileobj(content, file)
            if (done := file.seek(0, os.SEEK_END)) < start + size:
                raise ConnectionError(f"the connection ended after {done:,} of {start + size:,} bytes")
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            named = re.search(r"-([0-9a-f]{8,})\.", weights.file)
            if named and not digest.startswith(named[1]):
                part.unlink()
                raise ValueError(f"the SHA-256 begins with {digest[:8]}, not {named[1]}, so the file was removed")
            return part.replace(path)
    except Exception as error:  # the hub's library raises those of its own HTTP client
        reason = str(error).strip("<>.") or type(error).__name__
        raise Failure(
            f"{weights.address} was not downloaded: {reason}. The same command resumes it; or save it as {path}."
        ) from error
