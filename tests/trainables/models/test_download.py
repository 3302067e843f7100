"""``holdout backbones NAME --download``, from a server on this machine."""

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from rich.progress import wrap_file
from support.commands import holdout_here

from trainables.common.errors import Failure, InvalidInput
from trainables.models import BACKBONES, ModelConfig
from trainables.models.backbones import Published, published
from trainables.models.embedding import EmbeddingModel
from trainables.models.weights import download, weights_path


class Publisher(ThreadingHTTPServer):
    """A server of ``files`` by path, which ends each answer after ``cut`` bytes; ``asked`` are the ranges."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.files: dict[str, bytes] = {}
        self.cut: int | None = None
        self.asked: list[str | None] = []

    def publish(self, name: str, content: bytes) -> Published:
        """Publish ``content`` under a name with its SHA-256, as those of torch.hub."""
        file = f"{name}-{hashlib.sha256(content).hexdigest()[:8]}.pth"
        self.files[f"/{file}"] = content
        return published(f"http://127.0.0.1:{self.server_port}/{file}")


class Answers(BaseHTTPRequestHandler):
    server: Publisher

    def log_message(self, *words: object) -> None:
        pass

    def do_GET(self) -> None:
        self.wfile.write(self.answer()[: self.server.cut])

    def answer(self) -> bytes:
        wanted, server = self.headers["Range"], self.server
        server.asked.append(wanted)
        content = server.files.get(self.path)
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        if content is None:
            self.send_error(404)
            return b""
        if start and start >= len(content):
            self.send_error(416)
            return b""
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        return content[start:]


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    with Publisher() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


silent = partial(wrap_file, disable=True)
BYTES = bytes(range(256)) * 20_000


def test_a_file_comes_once_and_whole(publisher: Publisher) -> None:
    weights = publisher.publish("net", BYTES)
    for _ in range(2):
        path = download(weights, silent)
    assert (path, path.read_bytes()) == (weights_path(weights), BYTES)
    assert len(publisher.asked) == 1


def test_what_was_interrupted_is_resumed(publisher: Publisher) -> None:
    weights = publisher.publish("net", BYTES)
    publisher.cut = 3_000_000
    with pytest.raises(Failure, match=r"ended after 3,000,000 of 5,120,000 bytes\. The same command resumes it"):
        download(weights, silent)
    assert not weights_path(weights).exists(), "whole or not at all"
    publisher.cut = None
    assert download(weights, silent).read_bytes() == BYTES
    assert publisher.asked[-1] == "bytes=2999999-"


def test_another_file_is_refused_and_one_that_lacks_only_its_name_kept(publisher: Publisher) -> None:
    weights = publisher.publish("net", BYTES)
    publisher.files[f"/{weights.file}"] = BYTES[::-1]
    with pytest.raises(Failure, match=r"the SHA-256 begins with \w{8}, not \w{8}, so the file was removed"):
        download(weights, silent)
    assert not [path for path in weights_path(weights).parent.iterdir() if path.suffix != ".lock"]
    publisher.files[f"/{weights.file}"] = BYTES
    part = weights_path(weights).with_name(f"{weights.file}.part")
    part.write_bytes(BYTES)
    assert download(weights, silent).read_bytes() == BYTES
    assert not part.exists()
    nowhere = published(f"http://127.0.0.1:{publisher.server_port}/none-01234567.pth")
    with pytest.raises(Failure, match=rf"404.* or save it as {weights_path(nowhere)}"):
        download(nowhere, silent)


OWN = """
from trainables.models.backbones import Backbone, published
from trainables.models.networks import ConvNet

NET = Backbone(summary="a network", build=ConvNet, features=128, mean=(0, 0, 0), scale=(1, 1, 1),
               imagenet=published({address!r}))
NONE = Backbone(summary="a network", build=ConvNet, features=128, mean=(0, 0, 0), scale=(1, 1, 1))
"""


def test_the_command_that_an_error_names_downloads(
    publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(BACKBONES["convnet"].build().state_dict(), tmp_path / "net.pth")
    weights = publisher.publish("net", (tmp_path / "net.pth").read_bytes())
    (tmp_path / "published_net.py").write_text(OWN.format(address=weights.address))
    monkeypatch.syspath_prepend(tmp_path)
    network = ModelConfig(backbone="published_net:NET", weights="imagenet")
    with pytest.raises(InvalidInput, match="`holdout backbones published_net:NET --download` downloads them"):
        EmbeddingModel(network)
    assert not publisher.asked
    ended = holdout_here("backbones", "published_net:NET", "--download", "--json")
    assert json.loads(ended.stdout)[0]["imagenet"] == {
        "address": weights.address, "file": str(weights_path(weights)), "present": True,
    }  # fmt: skip
    ended = holdout_here("backbones", "published_net:NONE", "--download", "--json", code=2)
    assert "published_net:NONE has no published weights to download" in ended.stderr
    EmbeddingModel(network)
