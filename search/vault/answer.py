"""The answers of a vault, on its owner's account: what it is, and the scores of one frozen selection.

``holdout vault answer DIR`` reads a request from standard input and writes the answer to standard output, as
``git-upload-pack`` does, so that ssh's forced command or a line of sudoers is all the network and login there is.
"""

import shutil
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import IO, Any

import filelock

from search.records import ImageSet, images_in
from search.vault.held import OPENINGS, Vault
from search.vault.protocol import EMBEDDINGS, FORMAT, SentModel, content_of, public_key, receive, send, signed
from search.vault.sandbox import isolated
from trainables.common.errors import Failure, InvalidInput, counted, raise_if_any
from trainables.common.files import digest_of, json_digest, read_json, reading, remove_drafts, write_json, write_whole

REQUEST, ANSWER, ERRORS = "request.json", "answer.json", "errors.log"
OF_THE_MOMENT = {"finished", "of", "labels_only", "isolated"}
"""Keys of an answer that follow from the policy, the kernel or the clock."""


def answer(folder: Path, request: IO[bytes], reply: IO[bytes]) -> None:
    """Answer one request; whatever is wrong becomes an answer of one sentence."""
    try:
        vault = Vault(folder)
        head, blobs = receive(request, int(vault.policy.message_gb * 1e9))
        if head.get("format") != FORMAT:
            raise InvalidInput(f"The request has the format {head.get('format')!r}; this vault answers {FORMAT}.")
        if head.get("verb") == "describe":
            with reading("The request", "send it again"):
                found = {"nonce": str(head["nonce"]), **vault.description([*map(str, head["metrics"])])}
            send(reply, signed(found, vault.private_key))
        elif head.get("verb") == "open":
            with filelock.FileLock(folder / "lock"):  # a second request waits, and finds what the first has left
                content, files = _answered(vault, _opening(vault, head, blobs))
            send(reply, content, files)
        else:
            raise InvalidInput(f"The request is {head.get('verb')!r}; a vault answers describe and open.")
    except (InvalidInput, Failure) as error:
        sentences = error.sentences if isinstance(error, InvalidInput) else (str(error),)
        send(reply, {"error": [sentence.replace(str(folder), "the vault") for sentence in sentences]})
    except Exception as error:  # its text may tell of test items, so it stays here
        with suppress(OSError), (folder / ERRORS).open("a") as file:
            file.write(f"{_now()}\n{traceback.format_exc()}\n")
        send(reply, {"error": [f"The vault failed ({type(error).__name__}); its owner finds why in {ERRORS}."]})


def _opening(vault: Vault, head: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Path:
    """Return the folder of the opening that a request resumes or begins, whose line is in the ledger; or raise."""
    known, policy = vault.openings(), vault.policy
    with reading("The request", "send it again"):
        content = {key: head[key] for key in ("selection", "models", "training")}
        content |= {"search": str(head["search"]), "allow_overlap": int(head["allow_overlap"])}
        selection, sent, training = content["selection"], content["models"], content["training"]
        raise_if_any([*_mistakes(vault, selection, sent)])
        named = {training, *(digest for model in sent for digest in model["files"])}
        if missing := named - blobs.keys():
            raise InvalidInput(f"The request lacks {counted(len(missing), 'file')} that it names; send it again.")
        _ = ImageSet.from_bytes(blobs[training])
        models = [SentModel.of(model, blobs.__getitem__) for model in sent]
        asked = {"selection": selection["digest"], "models": json_digest(sent), "training": training}
    folder = vault.folder / OPENINGS / json_digest(asked)
    if is_new := folder.name not in known:
        if len(known) >= policy.openings:
            allowed = counted(policy.openings, "opening")
            raise InvalidInput(f"The vault allows {allowed}, and {len(known)} were made; ask its owner for another.")
        from search.vault.models import tried  # imports torch

        for model in models:
            isolated(partial(tried, model, vault.items, policy.device), policy)
    for entry in folder.parent.glob("*"):
        remove_drafts(entry)
        if entry != folder and entry.name not in known:
            shutil.rmtree(entry)  # of a request that was killed before its line was written
    folder.mkdir(parents=True, exist_ok=True)
    for digest in named:
        write_whole(folder / digest, methodcaller("write", blobs[digest]))
    write_json(folder / REQUEST, content)
    if is_new:
        line = {"opened": folder.name, "number": len(known) + 1, "search": content["search"], **asked, "time": _now()}
        with vault.ledger.locked():
            vault.ledger.append([line], lambda name: None)
    return folder


def _mistakes(vault: Vault, selection: Mapping[str, Any], models: list[Mapping[str, Any]]) -> Iterator[str]:
    description, policy = vault.description([*map(str, selection["test_metrics"])]), vault.policy
    yield from description["problems"]
    if selection["test_digest"] != description["test"]:
        yield "The selection was frozen for another vault, or for test classes of its own."
    if not 1 <= len(models) <= policy.models:
        yield f"The request has {len(models)} models; the vault scores 1 to {policy.models}."
    if any((model["form"] == EMBEDDINGS) != policy.labels_only for model in models):
        takes = "hands out its items and takes embeddings of them" if policy.labels_only else "takes models"
        yield f"This vault {takes}, and the request has something else."
    if json_digest({key: value for key, value in selection.items() if key != "digest"}) != selection["digest"]:
        yield "The selection was changed after it was frozen: its digest does not match."


def _answered(vault: Vault, folder: Path) -> tuple[dict[str, Any], list[bytes]]:
    """Return the signed answer of the opening in ``folder`` and its files; score the models if it is not stored."""
    if not (folder / ANSWER).exists():
        content, files = _scored(vault, folder)
        for file in files:
            write_whole(folder / digest_of(file), methodcaller("write", file))
        write_json(folder / ANSWER, signed(content, vault.private_key))
    stored = read_json(folder / ANSWER)
    return stored, [(folder / digest).read_bytes() for digest in filter(None, content_of(stored)["files"])]


def _scored(vault: Vault, folder: Path) -> tuple[dict[str, Any], list[bytes]]:
    """Score the models of the request in ``folder``; return the content of the answer, and its files."""
    from search.vault.models import score, side_of
    from trainables.data.store.view import Store

    request, policy, found = read_json(folder / REQUEST), vault.policy, images_in(vault.store(1))
    overlap = int(found.known_images(ImageSet.from_bytes((folder / request["training"]).read_bytes())).sum())
    if overlap > request["allow_overlap"]:
        raise InvalidInput(
            f"{overlap} of the {len(found)} test {vault.items.noun} also train or validate, and split.allow_overlap is "
            f"{request['allow_overlap']}: set it to {overlap} and run the command again, which states it in every "
            "table."
        )
    scores: list[dict[str, Any]] = []
    files: list[bytes | None] = []
    isolated_by = {"network", "files"}
    for sent in request["models"]:
        model = SentModel.of(sent, lambda digest: (folder / digest).read_bytes())
        store = Store(vault.store(side_of(model)))
        if store.features is not None:
            _ = store.features_NF  # opens the file, which the child process cannot
        work = partial(score, model, store, request["selection"]["test_metrics"], vault.items, policy.device)
        try:
            (entry, file), by = isolated(work, policy)
            isolated_by &= {*by}
        except InvalidInput as error:
            entry, file = {"reason": error.sentences[0]}, b""
        scores.append(entry)
        files.append(file if policy.by_class and file else None)
    described = vault.description([])
    answered = {
        **vault.openings()[folder.name],
        **{name: described[name] for name in ("labels_only", "key", "test", "items")},
        "of": policy.openings,
        "overlap": overlap,
        "copies": found.copies,
        "rows": [sent["row"] for sent in request["models"]],
        "scores": scores,
        "files": [file and digest_of(file) for file in files],
        "isolated": sorted(isolated_by),
        "finished": time.time(),
    }
    return answered, [file for file in files if file]


def problems_of(folder: Path) -> Iterator[str]:
    """Yield what is wrong with the vault in ``folder``: its ledger, its answers, and scores that are computed again."""
    vault = Vault(folder)
    yield from vault.ledger.broken_links()
    for name, line in vault.openings().items():
        place, opening = folder / OPENINGS / name, f"Opening {line['number']}, of {line['search']}"
        if not (place / ANSWER).exists():
            yield f"{opening}, has no answer: the same request finishes it, or its answer was removed."
            continue
        try:
            with reading(place):
                content = content_of(read_json(place / ANSWER), public_key(vault.private_key))
                anew, _ = _scored(vault, place)
        except (InvalidInput, OSError) as error:
            yield f"{opening}: {error}"
            continue
        if any(anew[key] != content[key] for key in anew.keys() - OF_THE_MOMENT):
            yield f"{opening}: its models give other scores now than those that were signed."


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
