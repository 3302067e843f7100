"""The answers of a vault, on its owner's account: what it is, and the scores of one frozen selection.

``holdout vault answer DIR`` reads a request from standard input and writes the answer to standard output, as
``git-upload-pack`` does, so that ssh's forced command or a line of sudoers is all the network and login there is.
"""

import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import filelock

from search.selection.ledger_file import ImageSet
from search.vault.held import OPENINGS, Vault
from search.vault.protocol import FORMAT, content_of, digest_of, public_key, receive, send, signed
from trainables.errors import Failure, InvalidInput, counted
from trainables.files import json_digest, read_json, reading, remove_drafts, write_json, write_whole

if TYPE_CHECKING:
    from search.vault.scoring import SentModel

REQUEST, ANSWER, TRAINING, ERRORS = "request.json", "answer.json", "training", "errors.log"


def answer(folder: Path, request: IO[bytes], reply: IO[bytes]) -> None:
    """Answer one request; whatever is wrong becomes an answer of one sentence."""
    try:
        vault = Vault(folder)
        head, blobs = receive(request, int(vault.policy.message_gb * 1e9))
        if head.get("format") != FORMAT:
            raise InvalidInput(f"The request has the format {head.get('format')!r}; this vault answers {FORMAT}.")
        if head.get("verb") == "describe":
            with reading("The request", "send it again"):
                found = {"nonce": str(head["nonce"]), **vars(vault.description([*map(str, head["metrics"])]))}
            send(reply, signed(found, vault.private_key))
        elif head.get("verb") == "open":
            with filelock.FileLock(folder / "lock"):  # a second request waits, and finds what the first has left
                opening = _opening(vault, head, blobs)
                content, files = opening.answered()
            send(reply, content, files)
        else:
            raise InvalidInput(f"The request is {head.get('verb')!r}; a vault answers describe and open.")
    except (InvalidInput, Failure) as error:
        sentences = error.sentences if isinstance(error, InvalidInput) else (str(error),)
        send(reply, {"error": [sentence.replace(str(folder), "the vault") for sentence in sentences]})
    except Exception as error:  # its text may tell of test items, so it stays here
        with (folder / ERRORS).open("a") as file:
            file.write(f"{time.strftime('%FT%TZ', time.gmtime())}\n{traceback.format_exc()}\n")
        send(reply, {"error": [f"The vault failed ({type(error).__name__}); its owner finds why in {ERRORS}."]})


class Opening:
    """An opening whose request is stored in ``folder``; it is scored once, and its answer repeated after that."""

    def __init__(self, vault: Vault, folder: Path) -> None:
        self._vault = vault
        self._folder = folder
        self._request: Mapping[str, Any] = read_json(folder / REQUEST)

    def answered(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the signed answer and its files; score the models first if no answer is stored."""
        path = self._folder / ANSWER
        if not path.exists():
            content, files = self.scored()
            for name, file in files.items():
                write_whole(self._folder / name, methodcaller("write", file))
            write_json(path, signed(content, self._vault.private_key))
        stored = read_json(path)
        line = {"answered": self._folder.name, "answer": digest_of(stored["text"].encode()), "time": _now()}
        ledger = self._vault.ledger
        with ledger.locked():
            if not any(entry.get("answered") == self._folder.name for entry in ledger.entries().values()):
                ledger.append([line], lambda name: None)
        return stored, [file.read_bytes() for file in sorted(self._folder.glob("*.npz"))]

    def scored(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Score the models; return the content of the answer, and the files by name."""
        vault, request = self._vault, self._request
        found, training = vault.images(), ImageSet.from_bytes((self._folder / TRAINING).read_bytes())
        overlap = int(found.known_images(training).sum())
        if overlap > request["allow_overlap"]:
            raise InvalidInput(
                f"{overlap} of the {len(found)} test {vault.items.noun} also train or validate, and "
                f"split.allow_overlap is {request['allow_overlap']}: set it to {overlap} and run the command again, "
                "which states it in every table."
            )
        line = next(entry for entry in vault.ledger.lines() if entry.get("opened") == self._folder.name)
        scores, files, isolated = self._scores()
        content = {
            **{name: line[name] for name in ("opened", "number", "selection", "models", "training", "search")},
            "of": vault.policy.openings,
            "line": line["sha256"],
            "previous": line["previous"],
            "test": vault.description([]).test,
            "items": len(found),
            "overlap": overlap,
            "copies": found.copies,
            "rows": [sent["row"] for sent in request["models"]],
            "scores": scores,
            "files": {name: digest_of(file) for name, file in files.items()},
            "isolated": isolated,
            "time": time.time(),
        }
        return content, files

    def _scores(self) -> tuple[list[dict[str, Any]], dict[str, bytes], list[str]]:
        import torch

        from search.vault.sandbox import isolated
        from search.vault.scoring import score
        from trainables.data.store.view import Store

        vault, policy = self._vault, self._vault.policy
        scores, files, held = [], {}, {"network", "files"}
        for number, sent in enumerate(self._request["models"]):
            model = _sent_model(sent, lambda digest: (self._folder / digest).read_bytes())
            store = Store(vault.store(model.side()).make())
            if store.features is not None:
                _ = store.features_NF  # opens the file, which the child process cannot
            names, device = self._request["selection"]["test_metrics"], torch.device(policy.device)
            work = partial(score, model, store, names, vault.items, device)
            limit = policy.memory_gb if policy.device == "cpu" else None
            try:
                (entry, content), by = isolated(work, seconds=policy.seconds, memory_gb=limit)
            except InvalidInput as error:
                scores.append({"reason": error.sentences[0]})
                continue
            held &= {*by}
            scores.append(entry)
            if policy.by_class:
                files[f"{number:04d}.npz"] = content
        return scores, files, sorted(held)


def _sent_model(sent: Mapping[str, Any], content_of: Callable[[str], bytes]) -> "SentModel":
    """Return a model of a request, whose files are the contents by their digests."""
    from search.vault.scoring import SentModel

    return SentModel(
        description=sent["description"],
        kind=sent["kind"],
        tensors=tuple(map(content_of, sent["tensors"])),
        program=sent["program"] and content_of(sent["program"]),
        embeddings=sent["embeddings"] and content_of(sent["embeddings"]),
    )


def _opening(vault: Vault, head: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Opening:
    """Return the opening that a request resumes or begins; its line is in the ledger, and on the disk.

    Raises:
        InvalidInput: the request is not one for this vault, or all openings are used up.
    """
    with reading("The request", "send it again"):
        content = {key: head[key] for key in ("selection", "models", "training")}
        content |= {"search": str(head["search"]), "allow_overlap": int(head["allow_overlap"])}
        selection, models = content["selection"], content["models"]
        named = [
            digest for sent in models for digest in (*sent["tensors"], sent["program"], sent["embeddings"]) if digest
        ]
        frozen = {key: value for key, value in selection.items() if key != "digest"}
        mistakes = [*_mistakes(vault, content)]
        if json_digest(frozen) != selection["digest"]:
            mistakes.append("The selection was changed after it was frozen: its digest does not match.")
        if missing := {*named, content["training"]} - blobs.keys():
            mistakes.append(f"The request lacks {counted(len(missing), 'file')} that it names; send it again.")
        _ = ImageSet.from_bytes(blobs.get(content["training"], b""))
        identity = json_digest([selection["digest"], models, content["training"]])
    if mistakes:
        raise InvalidInput(mistakes)
    _check_models(vault, [_sent_model(sent, blobs.__getitem__) for sent in models])
    known, folder = vault.openings(), vault.folder / OPENINGS / identity
    is_new = all(entry["opened"] != identity for entry in known)
    if is_new and len(known) >= vault.policy.openings:
        raise InvalidInput(
            f"The vault allows {counted(vault.policy.openings, 'opening')}, and {len(known)} were made; ask its owner "
            "for another."
        )
    for entry in (vault.folder / OPENINGS).glob("*"):
        remove_drafts(entry)
        if entry.name != identity and all(line["opened"] != entry.name for line in known):
            shutil.rmtree(entry)  # of a request that was killed before its line was written
    folder.mkdir(parents=True, exist_ok=True)
    for digest in {*named}:
        write_whole(folder / digest, methodcaller("write", blobs[digest]))
    write_whole(folder / TRAINING, methodcaller("write", blobs[content["training"]]))
    write_json(folder / REQUEST, content)
    if is_new:
        line = {
            "opened": identity,
            "number": len(known) + 1,
            "selection": selection["digest"],
            "search": content["search"],
            "models": json_digest(models),
            "training": content["training"],
            "time": _now(),
        }
        ledger = vault.ledger
        with ledger.locked():
            ledger.append([line], lambda name: None)
    return Opening(vault, folder)


def _mistakes(vault: Vault, content: Mapping[str, Any]) -> Iterator[str]:
    description = vault.description([str(name) for name in content["selection"]["test_metrics"]])
    yield from description.problems
    if content["selection"]["test_digest"] != description.test:
        yield "The selection was frozen for another vault, or for test classes of its own."
    if not 1 <= len(content["models"]) <= vault.policy.models:
        yield f"The request has {len(content['models'])} models; the vault scores 1 to {vault.policy.models}."
    if any((sent["embeddings"] is not None) != vault.policy.labels_only for sent in content["models"]):
        takes = "hands out its items and takes embeddings of them" if vault.policy.labels_only else "takes models"
        yield f"This vault {takes}, and the request has something else."


def _check_models(vault: Vault, models: Sequence["SentModel"]) -> None:
    """Raise :class:`InvalidInput` if a model cannot embed, so that nothing is opened for it."""
    import torch

    from search.vault.sandbox import isolated
    from search.vault.scoring import tried

    policy, features = vault.policy, vault.items.features()
    for model in models:
        work = partial(tried, model, features, vault.count, torch.device(policy.device))
        isolated(work, seconds=policy.seconds, memory_gb=policy.memory_gb if policy.device == "cpu" else None)


def problems_of(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the vault in ``folder``: its ledger, its answers, and scores that are computed again."""
    vault = Vault(folder)
    yield from vault.ledger.broken_links()
    lines = vault.ledger.entries().values()
    answers = {entry["answered"]: entry["answer"] for entry in lines if "answered" in entry}
    for entry in vault.openings():
        place = folder / OPENINGS / entry["opened"]
        what = f"Opening {entry['number']}, of {entry['search']}"
        if not (place / ANSWER).exists():
            if entry["opened"] in answers:
                yield f"{what}: its answer is missing; restore it from a copy."
            continue
        stored = read_json(place / ANSWER)
        content = content_of(stored, public_key(vault.private_key))
        if answers.get(entry["opened"]) != digest_of(stored["text"].encode()):
            yield f"{what}: its answer is not the one in the ledger; restore both from a copy."
        anew, _ = Opening(vault, place).scored()
        if any(anew[name] != content[name] for name in ("scores", "overlap", "copies", "selection", "models", "files")):
            yield f"{what}: its models give other scores now than those that were signed."


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
