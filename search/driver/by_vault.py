"""The test of a search whose test classes a vault has: one request with the frozen models, and one signed answer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from search.plan.plan import Plan
from search.selection import BaselineScoring, Scoring, Selection, baseline_entry, images_in
from search.stages import UNTRAINED, WHITENED
from search.vault.client import ToScore, backbone_tensors, open_vault, trained_model
from search.vault.held import HeldItems
from search.vault.protocol import digest_of
from trainables.data.store.spec import StoreSpec
from trainables.errors import Failure, InvalidInput
from trainables.files import json_text

ANSWER = "vault.json"
"""The signed answer, beside the results of the models."""


def test_items(plan: Plan) -> StoreSpec:
    """Return the test items that a vault hands out without labels; those of the training half if it keeps them."""
    if (folder := plan.config.final.vault_items) is None:
        return plan.images
    items = HeldItems(vault=folder)
    names = tuple(items.classes())
    return StoreSpec(dataset=items, class_names=names, short_side=plan.short_side, cache=plan.cache)


def scores_of_vault(
    plan: Plan, selection: Selection, scorings: Sequence[Scoring | BaselineScoring], run: Callable[..., list[Any]]
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Let the vault score the models of ``scorings``, whose images are :func:`test_items`.

    Args:
        plan: the search.
        selection: its frozen choice.
        scorings: the final models and the networks without training.
        run: computes a function on workers.

    Returns:
        The files of the opening, and what its record has besides them.

    Raises:
        Failure: the vault does not answer, or refuses; nothing is lost.
    """
    vault, address = dict(plan.split.vault), str(plan.config.final.vault)
    if vault["labels_only"] == "True":
        from search.selection import embeddings_of  # imports torch

        found = [entry for of_scoring in run(embeddings_of, scorings) for entry in of_scoring]
        models = [ToScore(row=row, embeddings=embeddings) for row, embeddings in found]
    else:
        models = [model for scoring in scorings for model in _models(scoring)]
    training = images_in(plan.images.make()).to_bytes()
    content = {
        "selection": selection.to_json(),
        "search": plan.config.name,
        "allow_overlap": plan.config.split.allow_overlap,
    }
    try:
        answer, signed, sent = open_vault(address, vault["key"], content, models, training)
    except InvalidInput as error:
        raise InvalidInput(
            [*error.sentences, "The trainings are kept; run the same command again after that."]
        ) from error
    files = {ANSWER: json_text(signed).encode()}
    scores, baselines, failed = [], [], []
    for number, (model, entry) in enumerate(zip(models, answer["scores"], strict=True)):
        row = dict(model.row)
        if "reason" in entry:
            loss, seed = row.get("loss", row.get("name")), row.get("seed")
            failed.append({"loss": loss, "seed": seed, "per_image": row["per_image"], "reason": entry["reason"]})
            continue
        (baselines if "name" in row else scores).append({**row, **entry})
        if digest := answer["files"].get(f"{number:04d}.npz"):
            files[row["per_image"]] = sent[digest]
    if not scores:
        raise Failure(f"The vault could not score any final model of {plan.config.name} ({failed[0]['reason']})")
    counts = {name: answer[name] for name in ("overlap", "copies")}
    told = {"key": vault["key"], "number": answer["number"], "of": answer["of"], "isolated": answer["isolated"]}
    parts = {"scores": scores, "baselines": baselines, "failed": failed, "vault": told, "finished": answer["time"]}
    return files, {**counts, **parts}


def _models(scoring: Scoring | BaselineScoring) -> Iterator[ToScore]:
    if isinstance(scoring, Scoring):
        row = {name: getattr(scoring, name) for name in ("loss", "source_trial", "seed", "fold", "per_image")}
        yield trained_model(row, scoring.spec, scoring.checkpoint)
        return
    from trainables.inference.model_files import description_of

    digest, description = digest_of(scoring.whitening), description_of(scoring.whitening)
    backbone = backbone_tensors(scoring.spec.model)
    for name in (UNTRAINED, WHITENED):
        row = baseline_entry(name, scoring.network, digest)
        yield ToScore(row=row, description=description, kind=name, tensors=(backbone, scoring.whitening))
