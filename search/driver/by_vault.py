"""The test of a search whose test classes a vault has: one request with the frozen models, and one signed answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from search.driver.verify.comparison import differing
from search.plan.plan import Plan
from search.plan.runs import RunFolder, stored_split
from search.selection import (
    BaselineScoring,
    ImageSet,
    ScoredOpening,
    Scoring,
    Selection,
    baseline_entry,
    images_in,
)
from search.stages import UNTRAINED, WHITENED
from search.vault.client import ToScore, backbone_tensors, open_vault, trained_model
from search.vault.held import HeldItems
from search.vault.protocol import content_of, digest_of
from trainables.data.store.spec import StoreSpec
from trainables.errors import Failure, InvalidInput
from trainables.files import json_digest, json_text, read_json

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
    names = {f"{number:04d}.npz": model.row["per_image"] for number, model in enumerate(models)}
    files = {names[name]: sent[digest] for name, digest in answer["files"].items()}
    parts = parts_of(answer, vault["key"])
    if not parts["scores"]:
        reason = parts["failed"][0]["reason"]
        raise Failure(f"The vault could not score any final model of {plan.config.name}: {reason}")
    return {ANSWER: json_text(signed).encode(), **files}, parts


def parts_of(answer: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return what the record of an opening has of the content of a vault's ``answer``."""
    scores: list[dict[str, Any]] = []
    baselines: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for row, entry in zip(answer["rows"], answer["scores"], strict=True):
        if "reason" in entry:
            loss, seed = row.get("loss", row.get("name")), row.get("seed")
            failed.append({"loss": loss, "seed": seed, "per_image": row["per_image"], "reason": entry["reason"]})
        else:
            (baselines if "name" in row else scores).append({**row, **entry})
    return {
        "finished": answer["time"],
        "overlap": answer["overlap"],
        "copies": answer["copies"],
        "scores": scores,
        "baselines": baselines,
        "failed": failed,
        "vault": {"key": key, **{name: answer[name] for name in ("number", "of", "isolated")}},
    }


def check_answer(folder: RunFolder, selection: Selection, record: ScoredOpening) -> Iterator[str]:
    """Yield how the ``record`` of an opening differs from the answer that its vault signed."""
    split = stored_split(folder)
    key = dict(split.vault)["key"]
    signed = read_json(folder.path / "test" / record.id / ANSWER)
    answer = content_of(signed, key)  # raises if another key signed it
    what = f"test.json opening {record.id[:12]} "
    frozen = {"selection": selection.digest, "test": split.test_digest}
    yield from differing(what, {name: answer[name] for name in frozen}, frozen)
    parts = parts_of(answer, key)
    stored = {name: part for name, part in record.content().items() if name in parts}
    yield from differing(what, stored, {name: part for name, part in parts.items() if part != []})
    named = {row["per_image"]: answer["files"].get(f"{at:04d}.npz") for at, row in enumerate(answer["rows"])}
    files = {name: digest for name, digest in record.files.items() if name != ANSWER}
    yield from differing(f"{what}files ", files, {name: digest for name, digest in named.items() if digest})


def check_sent(
    plan: Plan, record: ScoredOpening, scorings: Sequence[Scoring | BaselineScoring], training: ImageSet
) -> Iterator[str]:
    """Yield which models or training images that are kept here are not those of the signed answer."""
    answer = content_of(read_json(plan.folder.path / "test" / record.id / ANSWER), dict(plan.split.vault)["key"])
    what = f"test.json opening {record.id[:12]} "
    kept = {"training": digest_of(training.to_bytes())}
    if dict(plan.split.vault)["labels_only"] == "False":
        models = [model for scoring in scorings for model in _models(scoring)]
        kept["models"] = json_digest([model.to_json() for model in models])
    yield from differing(what, {name: answer[name] for name in kept}, kept)


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
