"""Answers of a vault at a search and a reviewer: replayed, cut and edited ones, and other images that are claimed."""

import io
import json
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import holdout_here, plain
from support.finished_search import finish, in_turn
from support.refusals import contents, sentences_of
from support.small_search import SHORTEST, draw_folder, small_search
from support.tampered import Copied
from support.vault_requests import images_of, message, openings

from search.driver.sealed import ANSWER, scores_of_vault
from search.driver.verify.scores import check_answer, check_sent, kept_scorings
from search.plan.make_plan import reopened
from search.plan.plan import Plan
from search.plan.records import Records
from search.plan.runs import RunFolder
from search.selection import ScoredOpening, Selection, images_in, scored_openings
from search.trust import addresses_in, remember
from search.vault.answer import answer
from search.vault.held import OPENINGS, Policy, Vault
from search.vault.make import make_vault
from search.vault.protocol import FORMAT, content_of, receive, send, signed
from trainables.common.errors import Failure, InvalidInput
from trainables.common.files import digest_of, json_text
from trainables.data.sets.folders import Folder

OTHER_KEY = secrets.token_bytes(32)
READ = [("status", "small"), ("report", "small"), ("verify", "small"), ("select", "small"), ("test", "small")]


@dataclass(frozen=True)
class ByVault:
    """A finished search whose test a vault scored, and the bytes of the request and of the answer."""

    runs: Path
    vault: Path
    request: bytes
    reply: bytes

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.runs, "small")

    @property
    def selection(self) -> Selection:
        return Selection.load(self.folder.selection)

    @property
    def record(self) -> ScoredOpening:
        (record,) = scored_openings(self.folder.test)
        return record

    @property
    def answer(self) -> Path:
        return self.folder.path / "test" / self.record.id / ANSWER


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> ByVault:
    """A search that asked its vault as a command; not to be changed."""
    folder = tmp_path_factory.mktemp("vault")
    data = Folder(root=str(draw_folder(folder / "all")))
    vault, training = folder / "vault", folder / "training"
    make_vault(data, vault, training, None, Policy(openings=2, memory_gb=4.0), seed=0)
    address = shlex.join([sys.executable, "-m", "holdout", "vault", "answer", str(vault)])
    dataset = {"name": "manifest", "file": str(training / "data.csv")}
    content = small_search(training, **SHORTEST | {"final": {"seeds": 1, "vault": address}}, dataset=dataset)
    runs = finish(folder / "runs", content)
    (place,) = [place for place in (vault / OPENINGS).iterdir() if place.is_dir()]
    asked = json.loads((place / "request.json").read_text())
    blobs = [path.read_bytes() for path in place.iterdir() if len(path.name) == 64]
    request = message({"verb": "open", "format": FORMAT, **asked}, blobs)
    stream = io.BytesIO()
    answer(vault, io.BytesIO(request), stream)
    return ByVault(runs, vault, request, stream.getvalue())


def test_the_search_has_the_signed_values(tested: ByVault) -> None:
    assert openings(tested.vault) == [1]
    key = Vault(tested.vault).description([])["key"]
    content = content_of(json.loads(tested.answer.read_text()), key)
    assert [score.content()["metrics"] for score in tested.record.scores] == [content["scores"][0]["metrics"]]
    told = {"number": 1, "of": 2, "labels_only": False, "isolated": content["isolated"]}
    assert tested.record.vault == {"key": key, **told}


def test_each_region_of_an_answer_is_signed(tested: ByVault) -> None:
    stored = json.loads(tested.answer.read_text())
    key = Vault(tested.vault).description([])["key"]
    content_of(stored, key)
    refused = f"The answer was not signed by the vault {key}, or was changed afterwards."
    for name, every in (("text", 23), ("signature", 7)):
        for at in range(0, len(stored[name]), every):
            for changed in (
                stored[name][:at] + ("0" if stored[name][at] != "0" else "1") + stored[name][at + 1 :],
                stored[name][:at],
                stored[name][:at] + stored[name][at + 1 :],
            ):
                edited = {**stored, name: changed}
                assert sentences_of(lambda edited=edited: content_of(edited, key)) == (refused,)  # type: ignore[misc]
    for other in ({}, {"text": stored["text"]}, {**stored, "text": None}, {**stored, "signature": "no hex"}):
        assert sentences_of(lambda other=other: content_of(other, key)) == (refused,)  # type: ignore[misc]
    forged = signed(json.loads(stored["text"]), OTHER_KEY)
    assert sentences_of(lambda: content_of(forged, key)) == (refused,)


# What a search is answered


def with_reply(tested: ByVault, plan: Plan, reply: bytes, folder: Path) -> Callable[[], object]:
    """Return the test of the search, to which a command answers ``reply``, whatever it is asked."""
    (folder / "reply").write_bytes(reply)
    address = shlex.join([sys.executable, "-c", "import sys; sys.stdin.read(0); sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())", str(folder / "reply")])  # noqa: E501  # fmt: skip
    final = plan.config.final.model_copy(update={"vault": address})
    changed = replace(plan, config=plan.config.model_copy(update={"final": final}))
    search = Records(plan.folder, plan)
    scorings = kept_scorings(search, tested.selection, tested.record, plan.images)
    return lambda: scores_of_vault(changed, tested.selection, scorings, in_turn)


@pytest.fixture
def plan(tested: ByVault) -> Plan:
    """The plan of the search on the account that made it."""
    content = yaml.safe_load(tested.folder.config.read_text())
    remember(tested.folder.path, addresses_in(tested.folder.path, content))
    return reopened(tested.runs, "small")


def edited(reply: bytes, change: Callable[[dict[str, Any], list[bytes]], object]) -> bytes:
    """Return a reply whose head or files were changed."""
    head, files = receive(io.BytesIO(reply), 1 << 30)
    blobs = [*files.values()]
    change(head, blobs)
    stream = io.BytesIO()
    send(stream, head, blobs)
    return stream.getvalue()


def better(head: dict[str, Any], _: list[bytes]) -> None:
    content = json.loads(head["text"])
    content["scores"][0]["metrics"] = dict.fromkeys(content["scores"][0]["metrics"], 1.0)
    head["text"] = json.dumps(content)


REPLIES: dict[str, tuple[Callable[[bytes], bytes], type[Exception], str]] = {
    "nothing": (lambda _: b"", Failure, "does not answer (it says nothing)"),
    "a line of a shell": (lambda _: b"Last login: today\n", Failure, "does not answer"),
    "half of it": (lambda reply: reply[: len(reply) // 2], Failure, "does not answer"),
    "a byte less": (lambda reply: reply[:-1], Failure, "does not answer"),
    "a changed file": (lambda reply: reply[:-1] + bytes([reply[-1] ^ 1]), Failure, "does not answer"),
    "better values": (lambda reply: edited(reply, better), InvalidInput, "or was changed afterwards"),
    "another key": (
        lambda reply: edited(reply, lambda head, _: head.update(signed(json.loads(head["text"]), OTHER_KEY))),
        InvalidInput,
        "or was changed afterwards",
    ),
    "no files": (
        lambda reply: edited(reply, lambda _, blobs: blobs.clear()), InvalidInput, "The vault's answer is damaged"
    ),
    "no text": (lambda reply: edited(reply, lambda head, _: head.pop("text")), InvalidInput, "was not signed"),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLIES)
def test_a_cut_or_edited_answer_is_a_sentence(name: str, tested: ByVault, plan: Plan, tmp_path: Path) -> None:
    change, kind, sentence = REPLIES[name]
    before = contents(tested.runs)
    with pytest.raises(kind, match=r"^[^\n]*") as caught:
        with_reply(tested, plan, change(tested.reply), tmp_path)()
    assert sentence in str(caught.value)
    assert contents(tested.runs) == before


def test_the_untouched_answer_is_accepted(tested: ByVault, plan: Plan, tmp_path: Path) -> None:
    files, parts = with_reply(tested, plan, tested.reply, tmp_path)()  # type: ignore[misc]
    assert parts["vault"]["number"] == 1
    assert digest_of(files[ANSWER]) == tested.record.files[ANSWER]


@pytest.fixture(scope="module")
def of_other_images(tested: ByVault) -> bytes:
    """The answer to the same selection and models, and a claim of other training images: the second opening."""
    head, blobs = receive(io.BytesIO(tested.request), 1 << 30)
    training = images_of(1, 2, 3).to_bytes()
    head["training"] = digest_of(training)
    stream = io.BytesIO()
    answer(tested.vault, io.BytesIO(message(head, [training, *blobs.values()])), stream)
    assert openings(tested.vault) == [1, 2]
    return stream.getvalue()


def test_a_replayed_answer_is_refused(tested: ByVault, plan: Plan, of_other_images: bytes, tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"^The vault's answer is that to another request; run the same command again\.$"):
        with_reply(tested, plan, of_other_images, tmp_path)()


# What a reviewer finds


def test_claimed_training_images_are_found(tested: ByVault, plan: Plan, of_other_images: bytes, tmp_path: Path) -> None:
    copied, record = Copied(tested.runs, tmp_path / "runs"), tested.record
    signed_head, _ = receive(io.BytesIO(of_other_images), 1 << 30)
    copied.write(copied.path / "test" / record.id / ANSWER, json_text({k: signed_head[k] for k in ("text", "signature")}).encode())  # noqa: E501  # fmt: skip
    forged = replace(plan, folder=RunFolder(tmp_path / "runs", "small"))
    search = Records(plan.folder, plan)
    scorings = kept_scorings(search, tested.selection, record, plan.images)
    training = images_in(plan.images.make())
    (problem,) = check_sent(Records(forged.folder, forged), record, scorings, training)
    assert "training" in problem
    assert [*check_sent(search, record, scorings, training)] == []


def test_better_values_with_fitting_digests_are_found(tested: ByVault) -> None:
    record = tested.record
    (score,) = record.scores
    forged = record.model_copy(update={"scores": (score.model_copy(update={"metrics": {"map_at_r": 0.99}}),)})
    assert [*check_answer(Records(tested.folder), record)] == []
    assert "scores" in next(check_answer(Records(tested.folder), forged))
    fewer = record.model_copy(update={"vault": {**record.vault, "number": 1, "of": 1}})
    assert "vault" in next(check_answer(Records(tested.folder), fewer))
    other = record.model_copy(update={"overlap": 0, "copies": 99})
    assert "copies" in next(check_answer(Records(tested.folder), other))


# The command of a stranger's vault


def test_no_command_runs_the_vault_that_a_stranger_names(
    tested: ByVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tested.runs, tmp_path / "runs")
    file = tmp_path / "runs" / "small" / "search.yaml"
    content = yaml.safe_load(file.read_text())
    content["final"]["vault"] = f"touch {tmp_path}/was-here"
    file.write_text(yaml.safe_dump(content))
    for command in READ:
        done = holdout_here(*command, "--runs", tmp_path / "runs", code=(0, 1, 2))
        if command[0] == "test":
            assert done.returncode == 2
            assert f"small names final.vault: touch {tmp_path}/was-here" in plain(done.stderr)
    assert not (tmp_path / "was-here").exists()
