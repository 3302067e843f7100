"""The digest of what an image store holds: the same images have the same, wherever they lie and whatever made them."""

import hashlib
from pathlib import Path

from trainables.data.store.contents import read_contents
from trainables.files import write_text

DIGEST = "digest.txt"
"""Kept beside the store's files, which never change: to read all pixels takes a while."""

_CHUNK = 1 << 24


def content_digest(path: Path) -> str:
    """SHA-256 (hex) of the class names, the image keys and the decoded pixels of the store at ``path``.

    Raises:
        Mistakes: there is no store, or it is damaged.
    """
    kept = path / DIGEST
    if not kept.exists():
        write_text(kept, _computed(path))
    return kept.read_text()


def _computed(path: Path) -> str:
    contents = read_contents(path)
    digest = hashlib.sha256("\n".join((*contents.class_names, "", *contents.image_keys)).encode())
    digest.update(contents.labels_N.tobytes())
    digest.update(contents.sizes_N2.tobytes())
    for start in range(0, len(contents.pixels), _CHUNK):
        digest.update(contents.pixels[start : start + _CHUNK].data)
    return digest.hexdigest()
