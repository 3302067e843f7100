"""Answers of a vault at a search and a reviewer: replayed, cut and edited ones, and other images that are claimed."""

import io
import json
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import command, holdout_here, plain
from support.finished_search import finish, in_turn
from support.refusals import contents, sentences_of
from support.small_search import SHORTEST, draw_folder, small_search
from support.tampered import Copied
from support.vault_requests import answered, images_of, message, openings, served

from search.driver.make_plan import reopened
from search.driver.sealed import ANSWER, scores_of_vault
from search.driver.verify.scores import check_answer, check_sent, kept_scorings
from search.records import ScoredOpening, Selection, images_in, scored_openings
from search.records.plan import Plan
from search.records.records import Records
from search.records.runs import RunFolder
from search.trust import addresses_in, remember
from search.vault.answer import REQUEST
from search.vault.held import OPENINGS, Policy, Vault, make_vault
from search.vault.protocol import FORMAT, content_of, receive, signed
from trainables.common.errors import Failure, InvalidInput
from trainables.common.files import digest_of, json_text
from trainables.data.sets.folders import Folder

OTHER_KEY = secrets.token_bytes(32)


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

    @property
    def key(self) -> str:
        return str(Vault(self.vault).description([])["key"])


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByVault]:
    """A search that asked its vault; not to be changed."""
    folder = tmp_path_factory.mktemp("vault")
    data = Folder(root=str(draw_folder(folder / "all")))
    vault, training = folder / "vault", folder / "vault-training"
    make_vault(data, vault, Policy(openings=2, memory_gb=4.0), seed=0)
    dataset = {"name": "manifest", "file": str(training / "data.csv")}
    with served(vault) as address:
        final = {"final": {"seeds": 1, "vault": address}}
        runs = finish(folder / "runs", small_search(training, **SHORTEST | final, dataset=dataset))
        (place,) = (vault / OPENINGS).iterdir()
        asked = json.loads((place / REQUEST).read_text())
        blobs = [path.read_bytes() for path in place.iterdir() if len(path.name) == 64]
        request = message({"verb": "open", "format": FORMAT, **asked}, blobs)
        yield ByVault(runs, vault, request, answered(vault, request))


def test_the_search_has_the_signed_values(tested: ByVault) -> None:
    assert openings(tested.vault) == [1]
    content = content_of(json.loads(tested.answer.read_text()), tested.key)
    assert [score.content()["metrics"] for score in tested.record.scores] == [content["scores"][0]["metrics"]]
    told = {"number": 1, "of": 2, "labels_only": False, "isolated": content["isolated"]}
    assert tested.record.vault == {"key": tested.key, **told}


def test_the_command_answers_on_its_output(tested: ByVault) -> None:
    """The opening is there already; slow tests and those of accounts score by the command."""
    done = subprocess.run(command("vault", "answer", tested.vault), input=tested.request, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, tested.reply, b"")


def test_each_region_of_an_answer_is_signed(tested: ByVault) -> None:
    stored, key = json.loads(tested.answer.read_text()), tested.key
    changed = [{}, {"text": stored["text"]}, {**stored, "text": None}, {**stored, "signature": "no hex"}]
    changed.append(signed(json.loads(stored["text"]), OTHER_KEY))
    for name, every in (("text", 97), ("signature", 13)):
        for at in range(0, len(stored[name]), every):
            before, character, after = stored[name][:at], stored[name][at], stored[name][at + 1 :]
            other = "0" if character != "0" else "1"
            changed += [{**stored, name: text} for text in (before + other + after, before, before + after)]
    refused = f"The answer was not signed by the vault {key}, or was changed afterwards."
    content_of(stored, key)
    for edited in changed:
        assert sentences_of(lambda edited=edited: content_of(edited, key)) == (refused,)  # type: ignore[misc]


# What a search is answered


@pytest.fixture
def plan(tested: ByVault) -> Plan:
    """The plan of the search on the account that made it."""
    content = yaml.safe_load(tested.folder.config.read_text())
    remember(tested.folder.path, addresses_in(tested.folder.path, content))
    return reopened(tested.runs, "small")


Scores = Callable[[bytes], tuple[dict[str, bytes], dict[str, Any]]]


@pytest.fixture
def scores_of(tested: ByVault, plan: Plan, tmp_path: Path) -> Scores:
    """Return the test of the search, to which a command answers the bytes, whatever it is asked."""
    file = tmp_path / "reply"
    replies = "import sys; sys.stdin.read(0); sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
    final = plan.config.final.model_copy(update={"vault": shlex.join([sys.executable, "-ISc", replies, str(file)])})
    changed = replace(plan, config=plan.config.model_copy(update={"final": final}))
    scorings = kept_scorings(Records(plan.folder, plan), tested.selection, tested.record, plan.images)

    def found(reply: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
        file.write_bytes(reply)
        return scores_of_vault(changed, tested.selection, scorings, in_turn)

    return found


def edited(reply: bytes, change: Callable[[dict[str, Any], list[bytes]], object]) -> bytes:
    """Return a reply whose head or files were changed."""
    head, files = receive(io.BytesIO(reply), 1 << 30)
    change(head, blobs := [*files.values()])
    return message(head, blobs)


def better(head: dict[str, Any], _: list[bytes]) -> None:
    content = json.loads(head["text"])
    content["scores"][0]["metrics"] = dict.fromkeys(content["scores"][0]["metrics"], 1.0)
    head["text"] = json.dumps(content)


REPLIES: dict[str, tuple[Callable[[bytes], bytes], type[Exception], str]] = {
    "nothing": (lambda _: b"", Failure, "does not answer (it says nothing)"),
    "a line of a shell": (lambda _: b"Last login: today\n", Failure, "does not answer"),
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


def test_a_cut_or_edited_answer_is_a_sentence(tested: ByVault, scores_of: Scores) -> None:
    files, parts = scores_of(tested.reply)
    assert parts["vault"]["number"] == 1
    assert digest_of(files[ANSWER]) == tested.record.files[ANSWER]
    before = contents(tested.runs)
    for change, kind, sentence in REPLIES.values():
        with pytest.raises(kind) as caught:
            scores_of(change(tested.reply))
        assert sentence in str(caught.value).partition("\n")[0]
    assert contents(tested.runs) == before


@pytest.fixture(scope="module")
def of_other_images(tested: ByVault) -> bytes:
    """The answer to the same selection and models, and a claim of other training images: the second opening."""
    head, blobs = receive(io.BytesIO(tested.request), 1 << 30)
    training = images_of(1, 2, 3).to_bytes()
    head["training"] = digest_of(training)
    reply = answered(tested.vault, message(head, [training, *blobs.values()]))
    assert openings(tested.vault) == [1, 2]
    return reply


def test_a_replayed_answer_is_refused(scores_of: Scores, of_other_images: bytes) -> None:
    with pytest.raises(Failure, match=r"^The vault's answer is that to another request; run the same command again\.$"):
        scores_of(of_other_images)


# What a reviewer finds


def test_claimed_training_images_are_found(tested: ByVault, plan: Plan, of_other_images: bytes, tmp_path: Path) -> None:
    copied, record, search = Copied(tested.runs, tmp_path / "runs"), tested.record, Records(plan.folder, plan)
    head, _ = receive(io.BytesIO(of_other_images), 1 << 30)
    copied.write(copied.path / "test" / record.id / ANSWER, json_text(head).encode())
    forged = replace(plan, folder=RunFolder(tmp_path / "runs", "small"))
    sent = kept_scorings(search, tested.selection, record, plan.images), images_in(plan.images.make())
    (problem,) = check_sent(Records(forged.folder, forged), record, *sent)
    assert "training" in problem
    assert [*check_sent(search, record, *sent)] == []


def test_better_values_with_fitting_digests_are_found(tested: ByVault) -> None:
    search, record = Records(tested.folder), tested.record
    (score,) = record.scores
    assert [*check_answer(search, record)] == []
    for changes in (
        {"scores": (score.model_copy(update={"metrics": {"map_at_r": 0.99}}),)},
        {"vault": {**record.vault, "number": 1, "of": 1}},
        {"copies": 99},
    ):
        assert next(iter(changes)) in next(check_answer(search, record.model_copy(update=changes)))


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
    for name in ("status", "report", "verify", "select", "test"):
        done = holdout_here(name, "small", "--runs", tmp_path / "runs", code=(0, 1, 2))
    assert done.returncode == 2
    assert f"small names final.vault: touch {tmp_path}/was-here" in plain(done.stderr)
    assert not (tmp_path / "was-here").exists()
