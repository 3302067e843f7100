"""Messages between a search and a vault, on standard input and output, and how a search asks.

A message is a line of JSON, the head, and then the blobs that it lists with their SHA-256 and size. An answer's head is
the text of a JSON object with its Ed25519 signature; one with ``error`` in place of it refuses.
"""

import json
import secrets
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from trainables.common.errors import Failure, InvalidInput
from trainables.common.files import DAMAGED, digest_of, reading

FORMAT = 1
"""Version of the messages, incremented with every change of their keys or their meaning."""
LONGEST_HEAD = 1 << 26
"""Most bytes of a head: a selection with its confirmations takes some kilobytes a loss."""


def send(stream: IO[bytes], head: Mapping[str, Any], blobs: Iterable[bytes] = ()) -> None:
    """Write a message; equal blobs are sent once."""
    unique = {digest_of(blob): blob for blob in blobs}
    listed = [{"sha256": digest, "size": len(blob)} for digest, blob in unique.items()]
    stream.write(json.dumps({**head, "blobs": listed}).encode() + b"\n")
    for blob in unique.values():
        stream.write(blob)
    stream.flush()


def receive(stream: IO[bytes], most: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return a message's head, and its blobs by SHA-256; raise if it is damaged or has more than ``most`` bytes."""
    line = stream.readline(LONGEST_HEAD)
    try:
        head = json.loads(line)
        sizes = {str(entry["sha256"]): int(entry["size"]) for entry in head.pop("blobs")}
    except DAMAGED as error:
        raise InvalidInput(f"The message is no line of JSON with its blobs ({line[:80]!r}); send it again.") from error
    if min(sizes.values(), default=0) < 0 or sum(sizes.values()) > most:
        raise InvalidInput(
            f"The message has {sum(sizes.values()):,} bytes of models and results; at most {most:,} are accepted."
        )
    blobs = {}
    for digest, size in sizes.items():
        content = stream.read(size)
        if len(content) != size or digest_of(content) != digest:
            raise InvalidInput(f"The message is cut or damaged at the blob {digest[:12]}…; send it again.")
        blobs[digest] = content
    return head, blobs


def public_key(private: bytes) -> str:
    """Return the public key (hex) of a ``private`` one."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def signed(content: Mapping[str, Any], private: bytes) -> dict[str, str]:
    """Return the text of ``content`` as JSON, and its signature (hex)."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return {"text": text, "signature": Ed25519PrivateKey.from_private_bytes(private).sign(text.encode()).hex()}


def content_of(answer: Mapping[str, Any], key: str | None = None) -> dict[str, Any]:
    """Return the content of a signed ``answer``; raise unless it names the public ``key``, whose owner signed it."""
    try:
        text, signature = str(answer["text"]), bytes.fromhex(answer["signature"])
        found: dict[str, Any] = json.loads(text)
        if key not in (None, found["key"]):
            raise ValueError("another key")
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(found["key"])).verify(signature, text.encode())
    except (InvalidSignature, *DAMAGED) as error:
        said = f"The answer was not signed by the vault {key or 'that it names'}, or was changed afterwards."
        raise InvalidInput(said) from error
    return found


NETWORK, PROGRAM, EMBEDDINGS = "network", "program", "embeddings"
"""The forms of a model: tensors of a described network, an ONNX program in place of a network of the user's own, or
embeddings of all items in the order of their keys, where only labels are secret."""


@dataclass(frozen=True, kw_only=True)
class SentModel:
    """A model in a request.

    Attributes:
        row: its entries in ``test.json``; for a network without training its name.
        form: NETWORK, PROGRAM or EMBEDDINGS.
        files: its files; of a network the backbone's tensors apart from the others where it was frozen.
        description: that of its checkpoint, :class:`~trainables.inference.model_files.EmbedderSpec` as JSON.
    """

    row: Mapping[str, Any]
    form: str
    files: tuple[bytes, ...]
    description: Any = None

    def to_json(self) -> dict[str, Any]:
        """Return it with digests in place of its files."""
        return {**vars(self), "files": [*map(digest_of, self.files)]}

    @classmethod
    def of(cls, sent: Mapping[str, Any], file_of: Callable[[str], bytes]) -> "SentModel":
        """Return the model that :meth:`to_json` wrote, whose files are ``file_of`` their digests."""
        return cls(**{**sent, "files": tuple(map(file_of, sent["files"]))})


# The side of a search: what it asks a vault.

DESCRIBED = (
    "key", "test", "features", "classes", "items", "by_class", "labels_only", "openings", "opened", "problems",
)  # fmt: skip
MOST_ANSWERED = 1 << 34
DESCRIBED_S = 120
"""The time limit of a description: a connection, and the start of Python."""


def ask(address: str, head: Mapping[str, Any], blobs: Sequence[bytes] = (), *, seconds: float | None = None) -> Any:
    """Send a request to the command ``address``; return the head of the answer and its blobs.

    Raises:
        InvalidInput: the vault refuses it.
        Failure: the command fails, or answers something else.
    """
    request = BytesIO()
    send(request, {**head, "format": FORMAT}, blobs)
    try:
        done = subprocess.run(shlex.split(address), input=request.getvalue(), capture_output=True, timeout=seconds)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        what = f"no answer after {seconds:g} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        raise Failure(
            f"The vault {address!r} cannot be reached ({what}); correct final.vault, or try again."
        ) from error
    try:
        answer, files = receive(BytesIO(done.stdout), MOST_ANSWERED)
    except InvalidInput as error:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
        raise Failure(
            f"The vault {address!r} does not answer ({said:.200}); correct final.vault, or run the same command again."
        ) from error
    if "error" in answer:
        raise InvalidInput([f"The vault refuses: {sentence}" for sentence in answer["error"]])
    return answer, files


def describe(address: str, metrics: Sequence[str]) -> dict[str, Any]:
    """Return the description of the vault at the command ``address``, for a search with these test ``metrics``."""
    nonce = secrets.token_hex(16)
    try:
        answer, _ = ask(address, {"verb": "describe", "nonce": nonce, "metrics": [*metrics]}, seconds=DESCRIBED_S)
    except Failure as error:
        raise InvalidInput(f"final.vault: {error}") from error
    with reading(f"final.vault: The answer of {address!r}", "name a vault"):
        content = content_of(answer)
        if content["nonce"] != nonce:
            raise ValueError("it is that to another request")
        return {name: content[name] for name in DESCRIBED}
