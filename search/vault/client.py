"""The side of a search: what it asks a vault, and the signed answer."""

import secrets
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from search.vault.protocol import FORMAT, Description, content_of, digest_of, receive, send
from trainables.errors import Failure, InvalidInput
from trainables.files import DAMAGED, as_path
from trainables.models.config import ModelConfig
from trainables.spec import TrialSpec

MOST_ANSWERED = 1 << 34
DESCRIBED_S = 120
"""The time limit of a description: a connection, and the start of Python."""


def _ask(address: str, head: Mapping[str, Any], blobs: Sequence[bytes] = (), *, seconds: float | None = None) -> Any:
    """Send a request to the command ``address``; return the head of the answer and its blobs.

    Raises:
        InvalidInput: the vault refuses it.
        Failure: the command fails, or says something else.
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


def describe(address: str, metrics: Sequence[str]) -> Description:
    """Return what the vault at ``address`` says of itself to a search with these test ``metrics``.

    Raises:
        InvalidInput: it refuses.
        Failure: it does not answer.
    """
    nonce = secrets.token_hex(16)
    answer, _ = _ask(address, {"verb": "describe", "nonce": nonce, "metrics": [*metrics]}, seconds=DESCRIBED_S)
    try:
        content = content_of(answer)
        if content.pop("nonce") != nonce:
            raise ValueError("an answer to another request")
        return Description(**{**content, "problems": tuple(content["problems"])})
    except DAMAGED as error:
        raise Failure(f"The vault {address!r} gives an answer that cannot be read ({error}); is it a vault?") from error


def check_vault(
    address: str,
    items: Path | None,
    metrics: Sequence[str],
    features: int | None,
    own: str | None,
) -> Description:
    """Return the description of a vault that will score a search; raise with all that prevents it.

    Args:
        address: the command that answers.
        items: the folder of the test items without labels, for a vault that hands them out.
        metrics: those of the test.
        features: the numbers of the search's vectors; None for images.
        own: the user-defined training, whose models only vaults score that hand out their items; None without one.
    """
    try:
        found = describe(address, metrics)
    except Failure as error:
        raise InvalidInput(f"final.vault: {error}") from error
    sentences = [*found.problems]
    if found.opened >= found.openings:
        sentences.append(
            f"final.vault: all {found.openings} openings of the vault were made; ask its owner for another."
        )
    if found.features != features:
        takes, has = (f"vectors of {n} numbers" if n else "images" for n in (found.features, features))
        sentences.append(f"final.vault: its items are {takes}, and those of dataset are {has}; name another vault.")
    if found.labels_only and (items is None or not items.is_dir()):
        sentences.append(
            "final.vault_items: the vault hands out its test items without labels and takes embeddings of them; give "
            f"the folder with these items, not {'null' if items is None else repr(str(items))}."
        )
    if not found.labels_only and items is not None:
        sentences.append("final.vault_items: the vault keeps its test items secret; set it to null.")
    if not found.labels_only and own is not None:
        sentences.append(
            f"final.vault: {own} is a user-defined training, whose code the vault does not run; ask its owner for one "
            "that hands out its items (`holdout vault make --labels-only`)."
        )
    if sentences:
        raise InvalidInput(sentences)
    return found


# The models of an opening.


@dataclass(frozen=True, kw_only=True)
class ToScore:
    """A model to send: its ``row`` in ``test.json``, its ``description``, and the contents of its files by use."""

    row: Mapping[str, Any]
    description: Any = None
    kind: str = "trained"
    tensors: tuple[bytes, ...] = ()
    program: bytes | None = None
    embeddings: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "row": dict(self.row),
            "description": self.description,
            "kind": self.kind,
            "tensors": [*map(digest_of, self.tensors)],
            "program": self.program and digest_of(self.program),
            "embeddings": self.embeddings and digest_of(self.embeddings),
        }

    @property
    def blobs(self) -> list[bytes]:
        return [*self.tensors, *filter(None, (self.program, self.embeddings))]


def trained_model(row: Mapping[str, Any], spec: TrialSpec, checkpoint: str) -> ToScore:
    """Return the model of a final training, with the backbone apart where it was frozen."""
    from trainables.inference.model_files import FROZEN, network_file
    from trainables.models.backbones import is_own_network

    path = as_path(checkpoint)
    digest = digest_of(path.read_bytes())
    weights, description = network_file(path)
    row = {**row, "model_sha256": digest}
    if is_own_network(spec.model.backbone):
        return ToScore(row=row, description=description, program=_program(spec.model, weights, description))
    frozen = (backbone_tensors(spec.model),) if FROZEN in description["origin"] else ()
    return ToScore(row=row, description=description, tensors=(*frozen, weights))


def _program(model: ModelConfig, weights: bytes, description: Any) -> bytes:
    """Return the ONNX program of a network of the user's own."""
    from trainables.inference.embedder import embedder_of
    from trainables.inference.model_files import ModelFiles, parsed_tensors
    from trainables.inference.portable import onnx_bytes

    tensors, _ = parsed_tensors(weights, Path("model.safetensors"))
    files = ModelFiles(
        address=model.backbone, path=Path(), tensors=tensors, description=description, card="", is_checkpoint=False
    )
    return onnx_bytes(embedder_of(files, device="cpu", trust_code=True))


def backbone_tensors(model: ModelConfig) -> bytes:
    """Return a file with the initial backbone of ``model``, which a search does not store."""
    from trainables.inference.model_files import tensors_bytes
    from trainables.training.inputs import of_backbone, untrained

    return tensors_bytes(untrained(of_backbone(model)).state_dict())


def open_vault(
    address: str, key: str, content: Mapping[str, Any], models: Sequence[ToScore], training: bytes
) -> tuple[dict[str, Any], dict[str, Any], dict[str, bytes]]:
    """Ask the vault to score ``models``; return the content of its answer, the signed answer, and its files by SHA-256.

    Args:
        address: the command that answers.
        key: the public key that was frozen when the search began.
        content: the frozen selection, the search's name and the images that may overlap.
        models: the final models, and the networks without training.
        training: the digests of the training images.

    Raises:
        InvalidInput: the vault refuses, or another one answers.
        Failure: it does not answer.
    """
    sent = [model.to_json() for model in models]
    head = {"verb": "open", **content, "models": sent, "training": digest_of(training)}
    answer, files = _ask(address, head, [training, *(blob for model in models for blob in model.blobs)])
    return content_of(answer, key), answer, files
