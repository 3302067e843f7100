"""Requests that a vault refuses: one sentence each, no opening, and the vault as it was."""

import json
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import onnx_programs
from support.onnx_programs import node, program
from support.refusals import sentences_of
from support.vault_requests import (
    IMAGES,
    VECTORS,
    ask,
    described,
    message,
    model_of,
    opened,
    opening_of,
    openings,
    said,
    vault_of_images,
    vault_of_vectors,
)

from search.vault.models import check_program
from search.vault.protocol import EMBEDDINGS, FORMAT, PROGRAM, SentModel
from trainables.inference.model_files import tensors_bytes
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A vault that all attacks of this module have left with its only opening."""
    folder = vault_of_vectors(tmp_path_factory.mktemp("vectors"), seconds=30.0, memory_gb=2.0, message_gb=0.01)
    yield folder
    assert openings(folder) == []
    content = opened(folder, model_of())
    assert (content["number"], content["of"]) == (1, 1)
    assert content["scores"][0]["metrics"]["map_at_r"] > 0


@pytest.fixture(scope="module")
def by_embeddings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One that hands out its items, and takes their embeddings."""
    folder = vault_of_vectors(tmp_path_factory.mktemp("labels"), labels_only=True)
    yield folder
    assert openings(folder) == []


# Messages


def _head(**changes: Any) -> bytes:
    return json.dumps(
        {"verb": "describe", "format": FORMAT, "nonce": "", "metrics": [], "blobs": [], **changes}
    ).encode()


DAMAGED = "The request is damaged, or another version wrote it"
GARBLED = "The message is no line of JSON with its blobs"
MESSAGES = {
    "nothing": (b"", GARBLED),
    "a head without end": (b"[" * (1 << 20), GARBLED),
    "an endless number": (_head(blobs=[{"sha256": "a", "size": 1e999}]), GARBLED),
    "less than nothing": (_head(blobs=[{"sha256": "a", "size": -5}]), "The message has -5 bytes"),
    "ten terabytes": (_head(blobs=[{"sha256": "a", "size": 10**13}]), "The message has 10,000,000,000,000 bytes"),
    "a blob that is cut": (_head(blobs=[{"sha256": "ab" * 32, "size": 9}]) + b"\nabc", "damaged at the blob abab"),
    "a path": (_head(blobs=[{"sha256": "../../x", "size": 3}]) + b"\nabc", "damaged at the blob ../../x"),
    "another format": (_head(format=99), "The request has the format 99; this vault answers 1."),
    "another verb": (_head(verb="shell"), "The request is 'shell'; a vault answers describe and open."),
    "no metrics": (_head(metrics=None), f"{DAMAGED} (TypeError"),
    "nothing to open": (_head(verb="open"), f"{DAMAGED} (KeyError"),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_a_damaged_message_is_a_sentence(name: str, vault: Path) -> None:
    request, sentence = MESSAGES[name]
    assert sentence in said(vault, request)


def test_a_cut_or_changed_request_is_a_sentence(vault: Path) -> None:
    request = message(*opening_of(vault, model_of()))
    for part in (0.2, 0.99):
        assert said(vault, request[: int(part * len(request))]).endswith("send it again.")
    for at in range(request.index(b"\n") + 1, len(request), 97):
        changed = bytearray(request)
        changed[at] ^= 1
        assert "cut or damaged at the blob" in said(vault, bytes(changed))


SELECTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "another vault's": ({"test_digest": "f" * 64}, "frozen for another vault, or for test classes of its own"),
    "own code": ({"test_metrics": ["os:system"]}, "os:system is your own code, or not of the vault's items"),
    "a huge k": ({"test_metrics": ["recall_at_1000000000"]}, "k = 1000000000 needs more than 1000000000 vectors"),
    "text for metrics": ({"test_metrics": "map_at_r"}, "is your own code, or not"),
}  # fmt: skip


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_that_is_not_for_this_vault_is_a_sentence(name: str, vault: Path) -> None:
    changes, sentence = SELECTIONS[name]
    assert sentence in said(vault, message(*opening_of(vault, model_of(), **changes)))


def test_a_selection_edited_after_it_was_frozen_is_refused(vault: Path) -> None:
    head, blobs = opening_of(vault, model_of())
    head["selection"]["test_metrics"] = ["recall_at_1"]
    assert said(vault, message(head, blobs)) == (
        "The selection was changed after it was frozen: its digest does not match."
    )


HEADS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no models": (lambda head: head.update(models=[]), "The request has 0 models; the vault scores 1 to 256."),
    "too many": (lambda head: head.update(models=head["models"] * 257), "The request has 257 models"),
    "no list": (lambda head: head.update(models={"a": 1}), f"{DAMAGED} (TypeError"),
    "a file that it lacks": (lambda head: head["models"][0].update(files=["f" * 64]), "The request lacks 1 file"),
    "no training digests": (lambda head: head.update(training="f" * 64), "The request lacks 1 file"),
    "other training digests": (lambda head: head.update(training=head["models"][0]["files"][0]), "is damaged"),
    "a text for a number": (lambda head: head.update(allow_overlap="all"), "is damaged"),
    "embeddings": (
        lambda head: head["models"][0].update(form=EMBEDDINGS),
        "This vault takes models, and the request has something else.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_a_request_with_a_wrong_entry_is_a_sentence(name: str, vault: Path) -> None:
    change, sentence = HEADS[name]
    head, blobs = opening_of(vault, model_of())
    change(head)
    assert sentence in said(vault, message(head, blobs))


# Models


def _weights(config: ModelConfig, value: float | None = None) -> bytes:
    tensors = EmbeddingModel(config).state_dict()
    return tensors_bytes(tensors if value is None else {name: tensor * value for name, tensor in tensors.items()})


def _lying_header() -> bytes:
    """Return a file of tensors that claims petabytes."""
    head = json.dumps({"w": {"dtype": "F32", "shape": [10**15], "data_offsets": [0, 4 * 10**15]}}).encode()
    return struct.pack("<Q", len(head)) + head


def _named(backbone: str) -> dict[str, Any]:
    description = described(VECTORS)
    return {"description": {**description, "model": {**description["model"], "backbone": backbone}}}


def _of_model(**changes: Any) -> dict[str, Any]:
    return {"description": described(replace(VECTORS, **changes))}


class Planted:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path("/tmp/vault-was-here").touch, ())


MODELS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "code": (lambda: _named("mylab.networks:Net"), "'mylab.networks:Net', whose code a vault does not run"),
    "code as a library's": (lambda: _named("torchvision:os.system"), "'torchvision:os.system', which torchvision does"),
    "a user-defined training": (
        lambda: {"description": {"format": 1, "trainable": "os:system", "params": {}, "origin": {}}},
        "is a model of os:system, a user-defined training",
    ),
    "weights elsewhere": (
        lambda: {"description": {**(given := described(VECTORS)), "model": {**given["model"], "weights": "/etc/x"}}},
        "model.weights must be null",
    ),
    "a pickle": (lambda: {"files": (pickle.dumps(Planted()),)}, "is not a valid safetensors file"),
    "petabytes in a header": (lambda: {"files": (_lying_header(),)}, "is not a valid safetensors file"),
    "another network's weights": (
        lambda: {"files": (_weights(replace(VECTORS, embedding_dim=5)),)},
        "weights of the model are not those of its network features:8",
    ),
    "weights that are no numbers": (
        lambda: {"files": (_weights(VECTORS, float("nan")),)}, "embeddings of a model are not finite"
    ),
    "65,536 dimensions": (
        lambda: {
            **_of_model(embedding_dim=65_536), "files": (_weights(replace(VECTORS, embedding_dim=65_536)),)
        }, "The embeddings of 4 items are of 4 × 65536; a vault scores one"
    ),
    "vectors of another size": (lambda: {
        "description": described(replace(VECTORS, backbone="features:9")),
        "files": (_weights(replace(VECTORS, backbone="features:9")),),
    }, "A model cannot be scored (RuntimeError)"),
    "64 GB of memory": (
        lambda: _of_model(head="mlp", head_widths=(65_536, 65_536, 65_536, 65_536)), "more memory than the vault allows"
    ),
    "no description": (lambda: {"description": None}, "describes a model in the format None"),
    "another form": (lambda: {"form": "evil", "files": ()}, "weights of the model are not those"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_hostile_model_is_a_sentence_before_the_opening(name: str, vault: Path) -> None:
    changes, sentence = MODELS[name]
    assert sentence in said(vault, message(*opening_of(vault, model_of(**changes()))))
    assert not Path("/tmp/vault-was-here").exists()


UNSAFE: dict[str, tuple[bytes, str]] = {
    "no program": (pickle.dumps(Planted()), "The ONNX program cannot be read"),
    "external data": (onnx_programs.external("/etc/passwd"), "has weights in other files"),
    "an external constant": (onnx_programs.external_constant("../key"), "has weights in other files"),
    "another operator": (
        program(node("Loop", "x"), node("If", "y")),
        "has the operators If, Loop, which a vault",
    ),
    "another domain": (onnx_programs.other_domain(), "has functions or operators of its own"),
    "a function": (onnx_programs.function(), "has functions or operators of its own"),
    "two outputs": (onnx_programs.two_outputs(), "must have one input and one output"),
    "sparse weights": (onnx_programs.sparse(), "has weights in other files"),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_program_is_a_sentence(name: str) -> None:
    content, sentence = UNSAFE[name]
    assert sentence in sentences_of(lambda: check_program(content))[0]
    assert not Path("/tmp/vault-was-here").exists()


PROGRAMS: dict[str, tuple[Callable[[], bytes], str]] = {
    "10 GB": (lambda: onnx_programs.huge(10), "more memory than the vault allows"),
    "a million dimensions": (lambda: onnx_programs.wide(1_000_000), "The embeddings of 4 items are of 4 × 1000000"),
    "numbers that are none": (lambda: program(node("Sub", "x", "x", to="z"), node("Div", "z", "z")), "are not finite"),
    "one embedding for all": (
        lambda: program(node("ReduceMean", "x", "axes"), axes=np.array([0])),
        "The embeddings of 4 items are of 1 ×",
    ),
}


def of_program(content: bytes) -> SentModel:
    return model_of(description=described(VECTORS), form=PROGRAM, files=(content,))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_is_a_sentence_before_the_opening(name: str, vault: Path) -> None:
    content, sentence = PROGRAMS[name]
    assert sentence in said(vault, message(*opening_of(vault, model_of(), of_program(content()))))


def test_a_program_that_mixes_its_batch_has_no_score(tmp_path: Path) -> None:
    content = opened(vault_of_vectors(tmp_path), of_program(onnx_programs.mixing()), of_program(onnx_programs.plain()))
    mixed, plain = content["scores"]
    assert mixed["reason"].startswith("An item's embedding depends on the items beside it")
    assert plain["metrics"]["map_at_r"] > 0


def test_an_image_of_gigabytes_is_a_sentence(tmp_path: Path) -> None:
    folder = vault_of_images(tmp_path, memory_gb=0.7)
    description = described(IMAGES, decoded_side=16_384, frame={"side": 16_384, "short_side": 16_384, "square": True})
    wide = model_of(IMAGES, description=description)
    assert "more memory than the vault allows" in said(folder, message(*opening_of(folder, wide)))
    assert opened(folder, model_of(IMAGES))["number"] == 1


@pytest.mark.parametrize("lacks", ["an image", "a ledger"])
def test_a_damaged_vault_tells_no_name(lacks: str, tmp_path: Path) -> None:
    """What happened is in a file that only the owner reads."""
    folder = vault_of_images(tmp_path)
    shutil.rmtree(folder / "cache")
    request = message(*opening_of(folder, model_of(IMAGES)))
    if lacks == "an image":
        (folder / "test" / "000013.png").unlink()
    else:
        (folder / "ledger.jsonl").mkdir()
    head, _ = ask(folder, request)
    (sentence,) = head["error"]
    assert not [name for name in (str(folder), ".png", "class 0") if name in sentence], sentence
    if lacks == "an image":
        assert sentence == "The vault failed (RuntimeError); its owner finds why in errors.log."
        assert "000013.png" in (folder / "errors.log").read_text()


# Embeddings


def of_embeddings(*shape: int, value: float | None = None) -> SentModel:
    embeddings_ND = torch.randn(shape) if value is None else torch.full(shape, value)
    row = {"loss": "pnp", "source_trial": 0, "seed": 0, "fold": None, "per_image": "0.npz"}
    return SentModel(row=row, form=EMBEDDINGS, files=(tensors_bytes({"embeddings": embeddings_ND}),))


GIVEN: dict[str, tuple[Callable[[], SentModel], str]] = {
    "one item fewer": (lambda: of_embeddings(47, 4), "The embeddings of 48 items are of 47 × 4; a vault"),
    "no dimensions": (lambda: of_embeddings(48, 0), "The embeddings of 48 items are of 48 × 0; a vault"),
    "too many dimensions": (
        lambda: of_embeddings(48, 16_385),
        "48 × 16385; a vault scores one of at most 16,384 dimensions",
    ),
    "numbers that are none": (lambda: of_embeddings(48, 4, value=float("nan")), "are not finite"),
    "another tensor": (
        lambda: model_of(form=EMBEDDINGS, files=(tensors_bytes({"labels": torch.randn(48, 4)}),)),
        "The embeddings of 48 items are of 0; a vault",
    ),
    "a model": (model_of, "This vault hands out its items and takes embeddings of them"),
}


@pytest.mark.parametrize("name", GIVEN)
def test_wrong_embeddings_are_a_sentence(name: str, by_embeddings: Path) -> None:
    make, sentence = GIVEN[name]
    assert sentence in said(by_embeddings, message(*opening_of(by_embeddings, make())))
    assert not Path("/tmp/vault-was-here").exists()


def test_equal_embeddings_have_no_score(tmp_path: Path) -> None:
    (score,) = opened(vault_of_vectors(tmp_path, labels_only=True), of_embeddings(48, 4, value=1.0))["scores"]
    assert score["reason"].startswith("Diverged: Of the test vectors, embeddings are zero or not finite, or equal.")
