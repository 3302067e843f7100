"""The test of a search whose test classes a vault has: one request with the frozen models, and one signed answer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from search.plan.plan import Plan
from search.selection import BaselineScoring, Scoring, Selection, images_in
from search.vault.client import ask, models_of
from search.vault.held import HeldItems
from search.vault.protocol import EMBEDDINGS, SentModel, content_of
from trainables.common.errors import Failure, InvalidInput
from trainables.common.files import digest_of, json_digest, json_text, reading
from trainables.data.store.store_spec import StoreSpec

ANSWER = "vault.json"
"""The signed answer, beside the results of the models."""

Scorings = Sequence[Scoring | BaselineScoring]


def test_items(plan: Plan) -> StoreSpec:
    """Return the test items that a vault hands out without labels; those of the training half if it keeps them."""
    folder = plan.config.final.vault_items
    return plan.images if folder is None else HeldItems(vault=folder).store(plan.short_side, plan.cache)


def models_to_send(scorings: Scorings, run: Callable[..., list[Any]], *, labels_only: bool) -> list[SentModel]:
    """Return the models of ``scorings``, or what they ``run`` on workers to give for :func:`test_items`."""
    from search.selection import embeddings_of  # imports torch

    if not labels_only:
        return [model for scoring in scorings for model in models_of(scoring)]
    found = run(embeddings_of, scorings)
    return [SentModel(row=row, form=EMBEDDINGS, files=(file,)) for entries in found for row, file in entries]


def scores_of_vault(
    plan: Plan, selection: Selection, scorings: Scorings, run: Callable[..., list[Any]]
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Let the vault score the final models and the networks without training; return the files and parts of the record.

    Raises:
        InvalidInput: the vault refuses; nothing is lost.
        Failure: it does not answer, or can score none of them.
    """
    vault, name = dict(plan.split.vault), plan.config.name
    models = models_to_send(scorings, run, labels_only=vault["labels_only"] == "True")
    training = images_in(plan.images.make()).to_bytes()
    head = {
        "verb": "open",
        "selection": selection.to_json(),
        "models": [model.to_json() for model in models],
        "training": digest_of(training),
        "search": name,
        "allow_overlap": plan.config.split.allow_overlap,
    }
    blobs = [training, *(file for model in models for file in model.files)]
    try:
        signed, sent = ask(str(plan.config.final.vault), head, blobs)
    except InvalidInput as error:
        raise InvalidInput([*error.sentences, "The trainings are kept; run the same command again."]) from error
    answer = content_of(signed, vault["key"])
    asked = {"selection": selection.digest, "models": json_digest(head["models"]), "training": head["training"]}
    if any(answer.get(name) != digest for name, digest in asked.items()):
        raise Failure("The vault's answer is that to another request; run the same command again.")
    with reading("The vault's answer", "ask its owner"):
        parts = parts_of(answer)
        files = {file: sent[digest] for file, digest in files_of(answer).items()}
    if not parts["scores"]:
        raise Failure(f"The vault could not score any final model of {name}: {parts['failed'][0]['reason']}")
    return {ANSWER: json_text(signed).encode(), **files}, parts


def parts_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the record of an opening has of the content of a vault's ``answer``."""
    found: dict[str, list[dict[str, Any]]] = {"scores": [], "baselines": [], "failed": []}
    for row, entry in zip(answer["rows"], answer["scores"], strict=True):
        if "reason" in entry:
            named = {"loss": row["name"], "seed": None, "per_image": row["per_image"]} if "name" in row else row
            found["failed"].append({**named, **entry})
        else:
            found["baselines" if "name" in row else "scores"].append({**row, **entry})
    said = {name: answer[name] for name in ("key", "number", "of", "labels_only", "isolated")}
    return {**{name: answer[name] for name in ("finished", "overlap", "copies")}, **found, "vault": said}


def files_of(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of the results of each model that was scored, by their name in the record."""
    return {row["per_image"]: digest for row, digest in zip(answer["rows"], answer["files"], strict=True) if digest}
