"""The scores of an opening recomputed, from the images, the trainings and the stored results of each image."""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from optuna.trial import TrialState

from search.driver.sealed import scored_as, sealed
from search.driver.verify.comparison import Check, check, differing
from search.plan.plan import Plan
from search.plan.search import OpenedSearch
from search.selection import Baselines, ImageSet, Ledger, ScoredOpening, Selection, baseline_entry, images_in
from search.stages import BASELINES, Stage
from trainables.arrays import read_arrays
from trainables.data.store.spec import StoreSpec
from trainables.metrics import metric_name
from trainables.metrics.table import is_retrieval, split_subset
from trainables.spec import defined

if TYPE_CHECKING:
    from trainables.data.store.view import StoreView

CLOSE, RECOMPUTED = (partial(math.isclose, rel_tol=tolerance) for tolerance in (1e-9, 1e-6))
"""Comparisons of means recomputed in another order, and of metrics of embeddings, perhaps on another machine."""


@contextmanager
def decoded_anew(images: StoreSpec) -> Iterator[Path]:
    """Decode ``images`` into a temporary store: the cached one may be of an earlier state of the files."""
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        yield replace(images, cache=folder).make()


def check_scores(
    search: OpenedSearch, selection: Selection, record: ScoredOpening, training: ImageSet
) -> Iterator[Check]:
    """Check the ``record`` of an opening in ``test.json``; ``training`` are the images of the training half."""
    from trainables.data.store.view import Store

    plan, what = search.plan, f"test.json opening {record.id[:12]}"
    ledger = Ledger(plan.folder.openings)
    (opening,) = (entry for entry in ledger.of_selection(selection.digest) if entry.id == record.id)
    with decoded_anew(sealed(plan).images(selection, opening)) as store:
        found, opened = images_in(store), opening.images
        stored = {
            "images": opened and opened.digest,
            "file of images": opened and ledger.image_set(opened).digest,
            "overlap with the training images": record.overlap,
            "copies within the test set": record.copies,
        }
        overlap = int(found.known_images(training).sum())
        anew = dict(zip(stored, (found.digest, found.digest, overlap, found.copies), strict=True))
        yield check(f"{what}: its images, and how many of them trained", differing(f"{what} ", stored, anew))
        yield check(
            f"{what}: the trainings and the networks without training that were scored",
            _scored_problems(what, search, selection, record),
        )
        problems = _metric_problems(what, plan, selection, record, Store(store).subset(plan.split.test))
        yield check(f"{what}: its metrics, from the results of each image", problems)


def _scored_problems(what: str, search: OpenedSearch, selection: Selection, record: ScoredOpening) -> Iterator[str]:
    """Check that exactly the complete final trainings, of which none is left, and the frozen baselines were scored.

    Those whose scoring failed are recorded as such.
    """
    frozen = Baselines.load(search.plan.folder.baselines) if selection.baselines else None
    trials = [(loss, trial) for loss in selection.chosen for trial in search.trials(loss, Stage.TEST)]
    ended = (TrialState.PRUNED, TrialState.FAIL)
    due = {
        "scores": [scored_as(loss, trial) for loss, trial in trials if trial.state not in ended],
        "baselines": [baseline_entry(name, frozen.network, frozen.whitening_sha256) for name in BASELINES if frozen],
    }
    failed = {entry.per_image for entry in record.failed}
    wanted = {part: [entry for entry in entries if entry["per_image"] not in failed] for part, entries in due.items()}
    content = record.content()
    stored = {
        part: [{key: entry.get(key) for key in next(iter(entries), entry)} for entry in content.get(part, ())]
        for part, entries in wanted.items()
    }
    yield from differing(f"{what} ", stored, wanted)


def _metric_problems(
    what: str, plan: Plan, selection: Selection, record: ScoredOpening, view: "StoreView"
) -> Iterator[str]:
    """Check the images, queries and superclasses of the stored results, and recompute every metric from them.

    Those of a user-defined training are also recomputed from the embeddings that were kept.
    """
    import torch

    from search.selection import EMBEDDINGS, images_of, kept_metrics, test_metrics
    from trainables.data.store.view import protocol_for, superclasses_for
    from trainables.metrics.evaluation import SUPERCLASS

    dataset, names, folder = (plan.config.dataset.source, selection.test_metrics, plan.folder.path / "test" / record.id)
    protocol, superclasses_N = protocol_for(dataset, view.image_keys), superclasses_for(names, dataset, view)
    queries_N = torch.ones(len(view), dtype=torch.bool) if protocol is None else protocol.queries_N
    for model in (*record.scores, *record.baselines):
        name, metrics = model.per_image, model.metrics
        arrays = read_arrays(folder / name)
        stored = {"keys": arrays.pop("keys").tolist(), "metrics": [*metrics], "labels": arrays["labels"].tolist()}
        anew = {"keys": view.image_keys, "metrics": [*map(metric_name, names)], "labels": view.labels_N.tolist()}
        kept = {part: torch.from_numpy(array) for part, array in arrays.items()}
        for part, values in kept.items():
            kind, subset = split_subset(part)
            if is_retrieval(part):
                stored[f"{part} queries"], anew[f"{part} queries"] = (~values.isnan()).tolist(), queries_N.tolist()
            if kind == SUPERCLASS and superclasses_N is not None:
                of_N = images_of(subset, view.labels_N, view.class_names, dataset.test_subsets())
                stored[part], anew[part] = values.tolist(), superclasses_N[of_N].tolist()
        yield from differing(f"{what} {name} ", stored, anew)
        found = kept_metrics(kept, view.class_names, dataset, names)
        yield from differing(f"{what} {name} ", {key: metrics[key] for key in found}, defined(found), CLOSE)
        if f"{EMBEDDINGS}/{name}" in record.files:
            embeddings_ND = torch.from_numpy(read_arrays(folder / EMBEDDINGS / name, "embeddings")["embeddings"])
            given = view.labels_N, view.class_names, dataset, names, superclasses_N, protocol
            _, found, _ = test_metrics(embeddings_ND, *given)
            yield from differing(
                f"{what} {EMBEDDINGS}/{name} ", {key: metrics[key] for key in found}, defined(found), RECOMPUTED
            )
