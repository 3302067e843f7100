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
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import filelock

from trainables.errors import Failure
from trainables.models.backbones import ON_HUB, Published
from trainables.models.weights import weights_path

Shown = Callable[[IO[bytes], int], AbstractContextManager[IO[bytes]]]
"""A function that shows how much of a file of so many bytes is read, as :func:`rich.progress.wrap_file`."""


def download(weights: Published, shown: Shown) -> Path:
    """Download published weights unless they are here, and return their file; what was interrupted is resumed.

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
        with filelock.FileLock(f"{part}.lock", timeout=0):
            with part.open("ab+") as file:
                _append_rest(file, weights.address, shown)
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


def _append_rest(file: IO[bytes], address: str, shown: Shown) -> None:
    """Download what ``file`` lacks, which ``torch.hub`` cannot; a server that sends only whole files sends it all."""
    request = Request(address, headers={"User-Agent": "holdout", "Range": f"bytes={file.tell()}-"})
    try:
        answer = urlopen(request, timeout=60)
    except HTTPError as error:
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and file.tell():
            return  # nothing is missing
        raise
    if answer.status != HTTPStatus.PARTIAL_CONTENT:
        file.truncate(0)
    size = file.seek(0, os.SEEK_END) + answer.length
    with answer, shown(answer, answer.length) as content:
        shutil.copyfileobj(content, file)
    if file.tell() < size:
        raise ConnectionError(f"the connection ended after {file.tell():,} of {size:,} bytes")
