"""The side of a search: what it asks a vault, and the models that it sends."""

import secrets
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

from search.selection import BaselineScoring, Scoring, baseline_entry
from search.stages import UNTRAINED, WHITENED
from search.vault.protocol import FORMAT, NETWORK, PROGRAM, SentModel, content_of, receive, send
from trainables.common.errors import Failure, InvalidInput
from trainables.common.files import as_path, digest_of, reading

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
    """Return what the vault at the command ``address`` says of itself to a search with these test ``metrics``.

    Raises:
        InvalidInput: it refuses, or does not answer.
    """
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


# The models of an opening.


def models_of(scoring: Scoring | BaselineScoring) -> Iterator[SentModel]:
    """Yield the model of a final training, or the baselines; a backbone that was frozen is a file of its own."""
    from search.vault.programs import program_of
    from trainables.inference.model_files import FROZEN, EmbedderSpec, description_of, read_network, tensors_bytes
    from trainables.models.backbones import is_own_network
    from trainables.training.inputs import of_backbone, untrained, whole_network

    config = scoring.spec.model
    is_own, backbone = is_own_network(config.backbone), of_backbone(config)
    form = PROGRAM if is_own else NETWORK
    files: tuple[bytes, ...]
    if isinstance(scoring, BaselineScoring):
        layer, state = scoring.whitening, untrained(backbone).state_dict()
        description = description_of(layer)
        spec = replace(EmbedderSpec.from_json(description, "The whitening"), model=backbone)
        files = (program_of(spec, state) if is_own else tensors_bytes(state), layer)
        for name in (UNTRAINED, WHITENED):
            row = baseline_entry(name, scoring.network, digest_of(layer))
            yield SentModel(row=row, form=form, files=files, description=description)
        return
    path = as_path(scoring.checkpoint)
    row = {**scoring.row, "model_sha256": digest_of(path.read_bytes())}
    state, description = read_network(path)
    frozen = description["origin"].get(FROZEN)
    if is_own:
        whole = whole_network(state, config, frozen) if frozen else state
        files = (program_of(EmbedderSpec.from_json(description, path), whole),)
    else:
        files = (*([tensors_bytes(untrained(backbone).state_dict())] if frozen else []), tensors_bytes(state))
    yield SentModel(row=row, form=form, files=files, description=description)
