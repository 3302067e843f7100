"""Openings that are killed, asked for twice at once, or meet a full disk: each counts once, and nothing is lost."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from support.forks import forked
from support.small_disk import small_disk
from support.vault_requests import (
    answered,
    ask,
    images_of,
    message,
    model_of,
    opened,
    opening_of,
    openings,
    said,
    vault_of_vectors,
)

from search.records import images_in
from search.vault.answer import ANSWER, REQUEST, problems_of
from search.vault.held import OPENINGS, Vault
from search.vault.protocol import content_of

STEPS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.fork", "shutil.rmtree", "os.truncate")
"""Events of Python at which the answering process is killed, if they change the vault or start the scoring."""


def _killed(_: Connection, vault: Path, request: bytes, at: int) -> None:
    """Answer ``request``, and end by SIGKILL at the step number ``at``."""
    count, process = 0, os.getpid()

    def step(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in STEPS or os.getpid() != process:
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        if event != "os.fork" and str(vault) not in str(arguments[0]):
            return
        count += 1
        if count == at:
            os.kill(process, signal.SIGKILL)

    sys.addaudithook(step)
    answered(vault, request)


def assert_first(vault: Path, request: bytes) -> None:
    """Assert that ``request`` is answered with the scores of the first opening, and is the only one."""
    head, files = ask(vault, request)
    assert content_of(head, Vault(vault).description([])["key"])["number"] == 1
    assert len(files) == 1
    assert openings(vault) == [1]


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_request_that_is_killed_at_any_step_counts_once(every: int, tmp_path: Path) -> None:
    origin = vault_of_vectors(tmp_path / "origin")
    request = message(*opening_of(origin, model_of()))
    other = message(*opening_of(origin, model_of(seed=1)))
    for at in range(1, 200, every):
        folder = shutil.copytree(origin, tmp_path / str(at))
        process, _ = forked(_killed, folder, request, at)
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        if process.exitcode == 0:
            break
        if openings(folder):  # the opening is this request's, whether it was answered or not
            assert said(folder, other).startswith("The vault allows 1 opening, and 1 were made")
        assert_first(folder, request)
        assert len(Vault(folder).ledger.entries()) == 1
        assert not [*folder.rglob("*.draft")]
    assert not [*problems_of(folder)]
    assert at > 20


def test_what_a_killed_request_left_is_no_opening_of_another(tmp_path: Path) -> None:
    """Killed before its line was written: another search has the opening, and the rest is removed."""
    folder = vault_of_vectors(tmp_path)
    left = folder / OPENINGS / ("0" * 64)
    left.mkdir(parents=True)
    (left / REQUEST).write_text("{}")
    other = opened(folder, model_of(seed=1))
    assert other["number"] == 1
    assert [path.name for path in (folder / OPENINGS).iterdir()] == [other["opened"]]


@pytest.mark.parametrize("same", [True, False])
def test_two_requests_at_once_are_one_opening(same: bool, tmp_path: Path) -> None:
    folder = vault_of_vectors(tmp_path)
    requests = [message(*opening_of(folder, model_of(seed=0 if same else seed))) for seed in range(3)]
    started = [forked(lambda reply, request: reply.send(answered(folder, request)), each) for each in requests]
    replies = [json.loads(ours.recv().splitlines()[0]) for _, ours in started]
    for process, _ in started:
        process.join()
    texts = {reply["text"] for reply in replies if "text" in reply}
    refused = [reply["error"] for reply in replies if "error" in reply]
    assert len(texts) == 1
    assert len(refused) == (0 if same else 2)
    assert all(sentence.startswith("The vault allows 1 opening, and 1 were made") for (sentence,) in refused)
    assert openings(folder) == [1]
    assert not [*problems_of(folder)]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda place: (place / ANSWER).unlink(), ", has no answer: the same request finishes it"),
        (lambda place: (place / ANSWER).write_text("{"), "is damaged"),
        (lambda place: (place / REQUEST).unlink(), "No such file"),
    ],
)
def test_verify_names_an_opening_without_its_files(
    damage: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    folder = vault_of_vectors(tmp_path)
    damage(folder / OPENINGS / opened(folder, model_of())["opened"])
    (problem,) = problems_of(folder)
    assert problem.startswith("Opening 1, of ")
    assert words in problem


def test_a_full_disk_is_a_sentence_and_counts_once(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8_000_000) as disk:
        folder = vault_of_vectors(disk.path / "vaults")
        request = message(*opening_of(folder, model_of()))
        sentences = set()
        for free in (0, 8_192, 16_384, 32_768, 49_152, 65_536):
            disk.leave(free) if free else disk.fill()
            head, files = ask(folder, request)
            if "error" not in head:
                break
            (sentence,) = head["error"]
            sentences.add(sentence)
            assert not files
            assert openings(folder) in ([], [1])
            assert not [*Vault(folder).ledger.broken_links()]
        disk.clear()
        assert any(sentence.startswith("There is no space left for the vault/") for sentence in sentences), sentences
        assert_first(folder, request)
        assert not [*problems_of(folder)]


def test_other_training_digests_are_another_opening(tmp_path: Path) -> None:
    """So nobody asks a vault again and again which public images it has."""
    folder = vault_of_vectors(tmp_path, openings=2)
    digests = images_in(Vault(folder).store(1)).digests_N.tolist()
    probe = opening_of(folder, model_of(), training=images_of(digests[0], 5))
    for _ in range(2):
        head, files = ask(folder, message(*probe))
        (sentence,) = head["error"]
        assert sentence.startswith("1 of the 48 test vectors also train or validate, and split.allow_overlap is 0")
        assert openings(folder) == [1]
        assert not files
    probe[0]["allow_overlap"] = 48  # the same images, and the overlap is accepted: it is the same opening
    head, _ = ask(folder, message(*probe))
    content = content_of(head, Vault(folder).description([])["key"])
    assert (content["number"], content["overlap"]) == (1, 1)
    assert opened(folder, model_of(), training=images_of(7))["number"] == 2
    again = message(*opening_of(folder, model_of(), training=images_of(digests[1])))
    assert said(folder, again).startswith("The vault allows 2 openings, and 2 were made")
