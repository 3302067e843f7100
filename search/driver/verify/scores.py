"""Checks of the ledger of test openings and of the scores.

Shapes: N test images, Q queries, K neighbours, B bins.
"""

import hashlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.trial import TrialState

from search.driver.sealed_test import scores_digest, sealed, trained_digests
from search.driver.verify.records import Check, Records, as_json, check, differing
from search.driver.verify.stages import decoded_anew
from search.plan.plan import best_checkpoint, training_of
from search.plan.runs import RunFolder
from search.selection import Baselines, ImageSet, Ledger, Opening, Selection, baseline_entry, images_in
from search.stages import BASELINES, Stage, short_study_name
from trainables.arrays import read_arrays
from trainables.data.store.spec import StoreSpec
from trainables.files import as_path
from trainables.metrics import metric_name
from trainables.metrics.table import is_retrieval, superclass_metrics

if TYPE_CHECKING:
    from trainables.metrics.protocol import RetrievalProtocol

CLOSE = 1e-9
"""Tolerance for sums and means recomputed in another order."""


RECOMPUTED = 1e-6
"""Tolerance for metrics recomputed from embeddings, perhaps on another machine."""


def _scored_openings(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the records of the openings in ``test.json``; none while the test classes are sealed."""
    openings: list[dict[str, Any]] = json.loads(folder.test.read_text())["openings"] if folder.test.exists() else []
    return openings


def check_ledger(records: Records, selection: Selection) -> Iterator[Check]:
    """Check that each opening of this selection is in the ledger and in ``test.json``, with the same content."""
    folder = records.plan.folder
    ledger, scored = Ledger(folder.openings), _scored_openings(folder)
    of_selection = ledger.of_selection(selection.digest)
    if not of_selection and not scored:
        yield Check("the scores (the test is sealed)", is_there=False)
        return
    yield check("the ledger: no line was changed, removed or moved", ledger.broken_links())
    count = len(scored)
    yield check(
        f"the ledger: {count} opening{'s' * (count != 1)}, each with its scores",
        _ledger_problems(records, selection, ledger, of_selection, scored),
    )
    for opening in of_selection:
        if selection.digest not in opening.scores:
            yield Check(f"the scores of the opening of {opening.time}", is_there=False)


def _ledger_problems(
    records: Records,
    selection: Selection,
    ledger: Ledger,
    of_selection: Sequence[Opening],
    scored: Sequence[dict[str, Any]],
) -> Iterator[str]:
    """Compare the openings in the ledger with those in ``test.json``; an opening may have no scores yet."""
    expected = [opening for opening in of_selection if selection.digest in opening.scores]
    yield from differing("test.json openings", [record["id"] for record in scored], [entry.id for entry in expected])
    for opening, record in zip(expected, scored, strict=True):
        for key, value in as_json(opening.entry).items():
            yield from differing(f"test.json opening {opening.id} {key}", record.get(key), value)
        digest = opening.scores[selection.digest]
        yield from differing(f"test.json opening {opening.id} digest", record.get("digest"), digest)
    lines, all_lines = ([*entries.values()] for entries in (ledger.entries(), ledger.all_entries()))
    for opening in of_selection:  # also those known only from the user's state folder
        read = [] if opening.images is None else [{"read": opening.id, **as_json(asdict(opening.images))}]
        for found in (lines, all_lines):
            line = [entry for entry in found if entry.get("id") == opening.id]
            yield from differing(f"the ledger's lines on {opening.id}", line, [as_json(opening.entry)])
            images = [entry for entry in found if entry.get("read") == opening.id]
            yield from differing(f"the images that the ledger has of {opening.id}", images, read)
        yield from differing(
            f"the ledger's opening {opening.id} test_digest", opening.test_digest, records.plan.split.test_digest
        )


def check_scores(records: Records, selection: Selection, training: ImageSet) -> Iterator[Check]:
    """Check the record of each opening in ``test.json``: images, trainings, models, metrics, neighbours and digest.

    ``training`` are the images of the training half.
    """
    plan = records.plan
    ledger = Ledger(plan.folder.openings)
    openings = {opening.id: opening for opening in ledger.of_selection(selection.digest)}
    for record in _scored_openings(plan.folder):
        opening = openings[record["id"]]
        images = sealed(plan).images(selection, opening)
        what = f"test.json opening {record['id'][:12]}"
        yield check(
            f"{what}: the images of the {len(images.class_names)} test classes",
            _image_problems(ledger, opening, images, training, record),
        )
        yield check(f"{what}: the trainings that were scored", _training_problems(what, records, selection, record))
        yield check(f"{what}: its models", _model_problems(what, records, selection, record))
        if selection.baselines is not None or record.get("baselines"):
            yield check(f"{what}: the networks without training", _baseline_problems(what, plan.folder, record))
        folder = plan.folder.path / "test" / record["id"]
        yield check(
            f"{what}: its metrics, from the per-image results",
            _metric_problems(what, records, selection.test_metrics, record, folder),
        )
        if plan.config.trainable is not None:
            yield check(
                f"{what}: its metrics, from the kept embeddings",
                _embedding_problems(what, records, selection.test_metrics, record, folder),
            )
        yield check(
            f"{what}: the stored neighbours, samples and thumbnails",
            _retrieval_problems(what, records, record, folder, images.class_names),
        )
        yield check(f"{what}: its digest", _digest_problems(what, record))


def _image_problems(
    ledger: Ledger, opening: Opening, images: StoreSpec, training: ImageSet, record: Mapping[str, Any]
) -> Iterator[str]:
    """Compare the test images, decoded again, with those in the ledger, and count those that trained, too."""
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as cache:
        found = images_in(decoded_anew(images, cache))
    what = f"the ledger's opening {opening.id} images"
    if opening.images is None:
        yield f"{what}: nothing is stored, but there are scores."
        return
    yield from differing(what, opening.images.digest, found.digest)
    yield from differing(f"{what}, all of them,", ledger.image_set(opening.images).digest, found.digest)
    overlap = int(found.known_images(training).sum())
    yield from differing(f"test.json opening {opening.id} overlap with the training images", record["overlap"], overlap)


def _finals(records: Records, selection: Selection) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield, for each complete final training, its entry in ``test.json`` and its checkpoint's path."""
    for loss in selection.chosen:
        for trial in records.search.trials(loss, Stage.TEST):
            if trial.state == TrialState.COMPLETE:
                name = {
                    "loss": loss,
                    "source_trial": trial.user_attrs["source_trial"],
                    "seed": trial.user_attrs["seed"],
                    "fold": trial.user_attrs.get("fold"),
                    "per_image": f"{short_study_name(loss, Stage.TEST)}-{trial.number}.npz",
                }
                yield name, best_checkpoint(trial, training_of(records.plan, loss, Stage.TEST, trial).directory)


def _training_problems(what: str, records: Records, selection: Selection, record: Mapping[str, Any]) -> Iterator[str]:
    """Check that exactly the complete final trainings were scored, and that they are unchanged."""
    for loss in selection.chosen:
        for trial in records.search.trials(loss, Stage.TEST):
            if not trial.state.is_finished():
                name = records.name_of(loss, Stage.TEST)
                yield f"{name} trial {trial.number}: it is {trial.state.name}, but it was scored."
    names = [name for name, _ in _finals(records, selection)]
    stored = [{key: model.get(key) for key in names[0]} for model in record["scores"]]
    yield from differing(f"{what} scores", stored, names)
    trained = trained_digests(records.search, selection)
    yield from differing(f"{what} studies", {name: record["studies"].get(name) for name in trained}, trained)


def _model_problems(what: str, records: Records, selection: Selection, record: Mapping[str, Any]) -> Iterator[str]:
    """Compare the digests of the checkpoints with those of the scored models."""
    for (name, checkpoint), model in zip(_finals(records, selection), record["scores"], strict=True):
        path = as_path(checkpoint)
        if not path.is_file():
            yield f"{what}: the scored model {path} is missing."
        else:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            yield from differing(f"{what} {name['per_image']} model_sha256", model["model_sha256"], found)


def _baseline_problems(what: str, folder: RunFolder, record: Mapping[str, Any]) -> Iterator[str]:
    """Check that exactly the baselines that were validated and frozen with the choice were scored."""
    frozen = Baselines.load(folder.baselines)
    wanted = [baseline_entry(name, frozen.network, frozen.whitening_sha256) for name in BASELINES] if frozen else []
    stored = [{key: entry.get(key) for key in wanted[0]} if wanted else entry for entry in record.get("baselines", [])]
    yield from differing(f"{what} baselines", stored, wanted)


def _all_scores(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of an opening that have scores: models and networks without training."""
    return [*record["scores"], *record.get("baselines", [])]


def _metric_problems(
    what: str, records: Records, names: Sequence[str], record: Mapping[str, Any], folder: Path
) -> Iterator[str]:
    """Check the files of per-image results, and recompute every metric from them."""
    import torch

    from search.selection import by_subset, gathered_parts, images_of, subset_name
    from trainables.metrics.evaluation import SUPERCLASS, from_parts

    keys, labels = _test_images(records)
    superclasses = _test_superclasses(records, labels) if superclass_metrics(names) else None
    class_names, test_subsets = records.plan.split.test, records.plan.config.dataset.source.test_subsets()
    queries = _test_protocol(records, keys).queries_N.tolist()
    for model in _all_scores(record):
        file, of_model = folder / model["per_image"], f"{what} {model['per_image']}"
        if not file.is_file():
            yield f"{of_model}: the file is missing."
            continue
        yield from differing(f"{of_model} metrics", list(model["metrics"]), [metric_name(name) for name in names])
        per_image = read_arrays(file)
        yield from differing(f"{of_model} keys", per_image.pop("keys").tolist(), keys)
        yield from differing(f"{of_model} labels", per_image["labels"].tolist(), labels)
        for name in filter(is_retrieval, per_image):
            yield from differing(f"{of_model} {name} queries", (~np.isnan(per_image[name])).tolist(), queries)
        kept = {part: torch.from_numpy(array) for part, array in per_image.items()}
        for subset, of_subset in by_subset(names).items():
            of_N = images_of(subset, kept["labels"], class_names, test_subsets)
            parts, labels_N = gathered_parts(kept, subset, of_N), kept["labels"][of_N]
            if superclasses is not None and SUPERCLASS in parts:
                expected = [
                    superclass for superclass, within in zip(superclasses, of_N.tolist(), strict=True) if within
                ]
                yield from differing(
                    f"{of_model} {subset_name(SUPERCLASS, subset)}", parts[SUPERCLASS].tolist(), expected
                )
            for name, value in from_parts(parts, labels_N, of_subset).items():
                stored = model["metrics"][subset_name(name, subset)]
                if not math.isclose(stored, value, rel_tol=CLOSE):
                    yield from differing(f"{of_model} {subset_name(name, subset)}", stored, value)
        yield from differing(f"{of_model} sha256", model["sha256"], hashlib.sha256(file.read_bytes()).hexdigest())


def _embedding_problems(
    what: str, records: Records, names: Sequence[str], record: Mapping[str, Any], folder: Path
) -> Iterator[str]:
    """Recompute the metrics of a user-defined training from the embeddings of the test items that were kept."""
    import torch

    from search.selection import EMBEDDINGS, test_metrics
    from trainables.data.store.view import protocol_for

    (keys, labels), dataset = _test_images(records), records.plan.config.dataset.source
    superclasses = _test_superclasses(records, labels) if superclass_metrics(names) else None
    for model in record["scores"]:
        file, of_model = folder / EMBEDDINGS / model["per_image"], f"{what} {EMBEDDINGS}/{model['per_image']}"
        if not file.is_file():
            yield f"{of_model}: the file is missing."
            continue
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        yield from differing(f"{of_model} sha256", model["embeddings_sha256"], digest)
        embeddings_ND = torch.from_numpy(read_arrays(file, "embeddings")["embeddings"])
        _, metrics = test_metrics(
            embeddings_ND,
            torch.tensor(labels),
            records.plan.split.test,
            dataset,
            names,
            None if superclasses is None else torch.tensor(superclasses),
            protocol_for(dataset, keys),
        )
        for name, value in metrics.items():
            if not math.isclose(model["metrics"][name], value, rel_tol=RECOMPUTED):
                yield from differing(f"{of_model} {name}", model["metrics"][name], value)


def _test_images(records: Records) -> tuple[list[str], list[int]]:
    """Return the keys of the test images, in the order of the data set, and their labels."""
    plan = records.plan
    label_of = {name: label for label, name in enumerate(plan.split.test)}
    classes = plan.config.dataset.source.classes()
    images = [(key, label_of[name]) for name, keys in classes.items() if name in label_of for key in keys]
    return [key for key, _ in images], [label for _, label in images]


def _test_protocol(records: Records, keys: Sequence[str]) -> "RetrievalProtocol":
    """Return the queries and the gallery among the test images."""
    from trainables.data.store.view import protocol_for
    from trainables.metrics.protocol import RetrievalProtocol

    found = protocol_for(records.plan.config.dataset.source, keys)
    return found or RetrievalProtocol.first(len(keys), len(keys))


def _test_superclasses(records: Records, labels: Sequence[int]) -> list[int]:
    """Return the superclass of each test image, as an index into the sorted superclasses of the test classes."""
    plan = records.plan
    superclass_of = plan.config.dataset.source.superclasses() or {}
    of_classes = [superclass_of[name] for name in plan.split.test]
    names = sorted(set(of_classes))
    return [names.index(of_classes[label]) for label in labels]


def _retrieval_problems(
    what: str, records: Records, record: Mapping[str, Any], folder: Path, class_names: Sequence[str]
) -> Iterator[str]:
    """Check the files of neighbours, samples and thumbnails in ``folder`` against their digests and the metrics.

    A query's metrics are recomputed if they depend only on the stored neighbours.
    """
    from search.selection import FOLDER, NAME, RetrievalFile

    protocol = _test_protocol(records, _test_images(records)[0])
    for model in _all_scores(record):
        file, of_model = folder / FOLDER / model["per_image"], f"{what} {FOLDER}/{model['per_image']}"
        if not file.is_file():
            yield f"{of_model}: the file is missing."
            continue
        per_image = read_arrays(folder / model["per_image"])
        yield from _sample_problems(of_model, retrieval := RetrievalFile.read(file), per_image, class_names, protocol)
        yield from _ranking_problems(of_model, retrieval, per_image, protocol)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        yield from differing(f"{of_model} sha256", model["retrieval_sha256"], digest)
    if not (pictures := folder / NAME).is_file():
        yield f"{what} {NAME}: the file is missing."
        return
    digest = hashlib.sha256(pictures.read_bytes()).hexdigest()
    yield from differing(f"{what} {NAME} sha256", record["thumbnails_sha256"], digest)


def _sample_problems(
    what: str,
    retrieval: Any,
    per_image: Mapping[str, Any],
    class_names: Sequence[str],
    protocol: "RetrievalProtocol",
) -> Iterator[str]:
    """Check that the sampled images follow from their rule, and that the histograms count every pair."""
    import torch

    from search.selection import MOST_NEIGHBOURS, MOST_RANKED, map_images, sampled_queries

    keys, labels_N, queries_N = per_image["keys"].tolist(), per_image["labels"], protocol.queries_N.numpy()
    for name, stored, rule in (
        ("queries", retrieval.queries_Q, sampled_queries(keys, MOST_NEIGHBOURS, queries_N)),
        ("sample", retrieval.sample_S, map_images(keys, labels_N, class_names)),
        ("ranked queries", retrieval.ranked_Q, sampled_queries(keys, MOST_RANKED, queries_N)),
    ):
        yield from differing(f"{what} {name}", stored.tolist(), rule.tolist())
    positives_Q, ignored_Q = (
        counts_N.numpy()[retrieval.ranked_Q] for counts_N in protocol.counts(torch.from_numpy(labels_N))
    )
    same = int(positives_Q.sum())
    pairs = len(retrieval.ranked_Q) * int(protocol.gallery_N.sum()) - int(ignored_Q.sum())
    yield from differing(f"{what} pairs of one class", int(retrieval.same_B.sum()), same)
    yield from differing(f"{what} pairs of two classes", int(retrieval.other_B.sum()), pairs - same)


def _ranking_problems(
    what: str, retrieval: Any, per_image: Mapping[str, Any], protocol: "RetrievalProtocol"
) -> Iterator[str]:
    """Compare each query's metrics with those of its stored neighbours, unless these tie."""
    import torch

    from trainables.metrics.retrieval import SCORES, Ranking
    from trainables.metrics.table import AT_R, split_at_k

    labels_N, queries_Q, neighbours_QK = per_image["labels"], retrieval.queries_Q, retrieval.neighbours_QK
    rows_Q, rows_QK = (torch.from_numpy(rows.astype(np.int64)) for rows in (queries_Q, neighbours_QK))
    if (protocol.ignored(torch.from_numpy(labels_N), rows_Q, rows_QK) | ~protocol.gallery_N[rows_QK]).any():
        yield f"{what} neighbours: a query has itself, or another image that is not in its gallery, as a neighbour."
    ranks = neighbours_QK.shape[1]
    if not ranks:
        return  # a single test image has no neighbours
    positives_Q = protocol.counts(torch.from_numpy(labels_N))[0].numpy()[queries_Q]
    ranking = Ranking.of(
        torch.from_numpy(labels_N[neighbours_QK] == labels_N[queries_Q][:, None]),
        torch.from_numpy(positives_Q.clip(max=ranks)),  # queries with more positives are not compared
    )
    for name in filter(is_retrieval, per_image):
        if name in AT_R:
            row, k, known_Q = name, ranks, positives_Q <= ranks
        elif (at_k := split_at_k(name)) and at_k[1] <= ranks:
            (row, k), known_Q = at_k, np.ones(len(queries_Q), dtype=bool)
        else:
            continue  # needs more neighbours than are stored
        stored_Q, found_Q = per_image[name][queries_Q], SCORES[row](ranking, k).numpy()
        differs_Q = known_Q & ~retrieval.tied_QK[:, :k].any(1) & ~np.isclose(stored_Q, found_Q, rtol=0, atol=CLOSE)
        for query in np.flatnonzero(differs_Q)[:1]:
            yield from differing(f"{what} {name} of image {queries_Q[query]}", stored_Q[query], found_Q[query])


def _digest_problems(what: str, record: Mapping[str, Any]) -> Iterator[str]:
    """Check the digest, which covers what cannot be recomputed, such as metrics without per-image results."""
    yield from differing(f"{what} digest", record["digest"], scores_digest(record))
