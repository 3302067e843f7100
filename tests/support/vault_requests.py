"""Vaults of a few items, and requests to them as a search sends them."""

import io
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from support.forks import forked
from support.small_search import draw_folder

from search.records.ledger_file import ImageSet
from search.vault import models as models  # here, and not again in each copy of this process
from search.vault.answer import answer
from search.vault.held import LEDGER, Policy, Vault, make_vault
from search.vault.protocol import FORMAT, NETWORK, SentModel, content_of, receive, send
from trainables.common.files import digest_of, json_digest
from trainables.data import Frame
from trainables.data.sets.features import FeatureFile
from trainables.data.sets.folders import Folder
from trainables.inference.model_files import EmbedderSpec, tensors_bytes
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel

NUMBERS = 8
"""The numbers of a vector."""
VECTORS = ModelConfig(backbone=f"features:{NUMBERS}", embedding_dim=4)
IMAGES = ModelConfig(embedding_dim=4)
SIDE = 16


def vault_of_vectors(folder: Path, **policy: Any) -> Path:
    """Make a vault of 8 classes with 6 vectors each."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    labels = np.repeat([f"species-{number:02d}" for number in range(16)], 6)
    vectors = generator.standard_normal((96, NUMBERS)) + np.repeat(generator.standard_normal((16, NUMBERS)), 6, axis=0)
    ids = np.array([f"photo-{number:03d}" for number in range(96)])
    np.savez(folder / "all.npz", embeddings=vectors.astype(np.float32), labels=labels, ids=ids)
    return _made(FeatureFile(file=str(folder / "all.npz")), folder, policy)


def vault_of_images(folder: Path, **policy: Any) -> Path:
    """Make a vault of 8 classes with 3 images each."""
    return _made(Folder(root=str(draw_folder(folder / "all", images=3))), folder, policy)


def _made(dataset: Any, folder: Path, policy: dict[str, Any]) -> Path:
    make_vault(dataset, folder / "vault", Policy(**{"memory_gb": 4.0, "seconds": 60.0, **policy}), seed=0)
    return folder / "vault"


def described(model: ModelConfig, **changes: Any) -> dict[str, Any]:
    """Return the description of a model, with other keys where ``changes`` name them."""
    side = 1 if model.backbone.startswith("features") else SIDE
    spec = EmbedderSpec(
        model=model, decoded_side=side, frame=Frame(side=side, short_side=side), batch_size=4, origin={}
    )
    return {**spec.to_json(), **changes}


def model_of(config: ModelConfig = VECTORS, seed: int = 0, **changes: Any) -> SentModel:
    """Return a random network as a search sends it; ``changes`` replace parts of it."""
    torch.manual_seed(seed)
    weights = tensors_bytes(EmbeddingModel(config).state_dict())
    row = {"loss": "pnp", "source_trial": 0, "seed": seed, "fold": None, "per_image": f"{seed}.npz"}
    return replace(SentModel(row=row, form=NETWORK, files=(weights,), description=described(config)), **changes)


def images_of(*numbers: int) -> ImageSet:
    return ImageSet.of([[f"{number:x}" for number in numbers]])


def opening_of(
    vault: Path, *models: SentModel, training: ImageSet | None = None, **changes: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Return a request to score ``models``: its head and its blobs; ``changes`` replace keys of its selection."""
    digests = (training or images_of(1, 2)).to_bytes()
    test = Vault(vault).description([])["test"]
    selection = {"test_metrics": ["map_at_r"], "test_digest": test, "search": "birds", **changes}
    head = {
        "verb": "open",
        "format": FORMAT,
        "selection": {**selection, "digest": json_digest(selection)},
        "search": "birds",
        "allow_overlap": 0,
        "models": [model.to_json() for model in models],
        "training": digest_of(digests),
    }
    return head, [digests, *(file for model in models for file in model.files)]


def message(head: Mapping[str, Any], blobs: Iterable[bytes] = ()) -> bytes:
    stream = io.BytesIO()
    send(stream, head, blobs)
    return stream.getvalue()


def answered(vault: Path, request: bytes) -> bytes:
    reply = io.BytesIO()
    answer(vault, io.BytesIO(request), reply)
    return reply.getvalue()


def ask(vault: Path, request: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the head of the answer to ``request``, and its files."""
    return receive(io.BytesIO(answered(vault, request)), 1 << 30)


RELAY = """import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.stdin.buffer.read())
s.shutdown(socket.SHUT_WR)
sys.stdout.buffer.write(s.makefile("rb").read())"""


@contextmanager
def served(vault: Path) -> Iterator[str]:
    """Yield the command that asks ``vault`` over a socket, on which a copy of this process answers.

    A command of its own would import PyTorch for each request.
    """
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(path := f"{folder}/socket")
        server.listen()
        process, _ = forked(_serve, vault, server)
        try:
            yield shlex.join([sys.executable, "-ISc", RELAY, path])
        finally:
            process.kill()
            process.join()


def _serve(_: Connection, vault: Path, server: socket.socket) -> None:
    while True:
        client, _address = server.accept()
        with client, client.makefile("rwb") as stream:
            answer(vault, stream, stream)


def opened(vault: Path, *models: SentModel, **changes: Any) -> dict[str, Any]:
    """Return the content of the answer to an opening with ``models``; fail if it is refused."""
    head, _ = ask(vault, message(*opening_of(vault, *models, **changes)))
    assert "error" not in head, head
    return content_of(head, Vault(vault).description([])["key"])


def said(vault: Path, request: bytes) -> str:
    """Return the one sentence with which ``request`` is refused; it tells no name, and the vault stays as it was."""
    before = kept(vault)
    head, files = ask(vault, request)
    assert not files
    assert kept(vault) == before
    (sentence,) = head["error"]
    assert not [name for name in (str(vault), "photo-", "species-", ".png", "class 0") if name in sentence], sentence
    return str(sentence)


def kept(vault: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(vault)): path.read_bytes()
        for path in sorted(vault.rglob("*"))
        if path.is_file() and "cache" not in path.parts and path.name not in ("lock", f"{LEDGER}.lock")
    }


def openings(vault: Path) -> list[int]:
    return [int(entry["number"]) for entry in Vault(vault).openings().values()]
