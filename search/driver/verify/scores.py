"""The scores of an opening recomputed, from the images, the trainings and the stored results of each image."""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.trial import TrialState

from search.driver.sealed_test import sealed
from search.driver.verify.comparison import Check, check, differing
from search.plan.search import OpenedSearch
from search.selection import Baselines, ImageSet, Ledger, Selection, baseline_entry, images_in
from search.stages import BASELINES, Stage, short_study_name
from trainables.arrays import read_arrays
from trainables.data import Dataset
from trainables.data.store.spec import StoreSpec
from trainables.metrics import metric_name
from trainables.metrics.table import is_retrieval, split_subset

if TYPE_CHECKING:
    from trainables.data.store.view import StoreView

CLOSE, RECOMPUTED = 1e-9, 1e-6
"""Tolerance for means recomputed in another order, and for metrics of embeddings, perhaps on another machine."""


@contextmanager
def decoded_anew(images: StoreSpec) -> Iterator[Path]:
    """Decode ``images`` into a temporary store: the cached one may be of an earlier state of the files."""
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        yield replace(images, cache=folder).make()


def check_scores(
    search: OpenedSearch, selection: Selection, record: Mapping[str, Any], training: ImageSet
) -> Iterator[Check]:
    """Check the ``record`` of an opening in ``test.json``; ``training`` are the images of the training half."""
    from trainables.data.store.view import Store

    plan = search.plan
    what, folder = f"test.json opening {record['id'][:12]}", plan.folder.path / "test" / record["id"]
    ledger = Ledger(plan.folder.openings)
    (opening,) = (entry for entry in ledger.of_selection(selection.digest) if entry.id == record["id"])
    with decoded_anew(sealed(plan).images(selection, opening)) as store:
        found, opened = images_in(store), opening.images
        digests = {"opened": opened and opened.digest, "file": opened and ledger.image_set(opened).digest}
        overlap = int(found.known_images(training).sum())
        yield check(
            f"{what}: its images, which the ledger has, and how many of them trained",
            differing(
                what,
                {"images": digests, "overlap": record["overlap"]},
                {"images": dict.fromkeys(digests, found.digest), "overlap": overlap},
            ),
        )
        yield check(
            f"{what}: the trainings and networks that were scored", _scored_problems(what, search, selection, record)
        )
        view = Store.open(store).subset(plan.split.test)
        yield check(
            f"{what}: its metrics, from the per-image results",
            _metric_problems(what, selection.test_metrics, record, folder, view, plan.config.dataset.source),
        )


def _scored_problems(what: str, search: OpenedSearch, selection: Selection, record: Mapping[str, Any]) -> Iterator[str]:
    """Check that exactly the complete final trainings and the frozen baselines were scored."""
    frozen = Baselines.load(search.plan.folder.baselines) if selection.baselines else None
    wanted = {
        "scores": [*_trained(search, selection)],
        "baselines": [baseline_entry(name, frozen.network, frozen.whitening_sha256) for name in BASELINES if frozen],
    }
    stored = {
        part: [{key: entry.get(key) for key in next(iter(entries), entry)} for entry in record.get(part, ())]
        for part, entries in wanted.items()
    }
    yield from differing(what, stored, wanted)


def _trained(search: OpenedSearch, selection: Selection) -> Iterator[dict[str, Any]]:
    for loss in selection.chosen:
        for trial in search.trials(loss, Stage.TEST):
            if trial.state == TrialState.COMPLETE or not trial.state.is_finished():
                yield {
                    **{name: trial.user_attrs.get(name) for name in ("source_trial", "seed", "fold")},
                    "loss": loss,
                    "per_image": f"{short_study_name(loss, Stage.TEST)}-{trial.number}.npz",
                }


def _metric_problems(
    what: str, names: Sequence[str], record: Mapping[str, Any], folder: Path, view: "StoreView", dataset: Dataset
) -> Iterator[str]:
    """Check the images, queries and superclasses of the per-image results, and recompute every metric from them.

    Those of a user-defined training are also recomputed from the embeddings that were kept.
    """
    import torch

    from search.selection import EMBEDDINGS, images_of, kept_metrics, test_metrics
    from trainables.data.store.view import protocol_for, superclasses_for
    from trainables.metrics.evaluation import SUPERCLASS

    protocol, superclasses_N = protocol_for(dataset, view.image_keys), superclasses_for(names, dataset, view)
    queries_N = torch.ones(len(view), dtype=torch.bool) if protocol is None else protocol.queries_N
    for model in (*record["scores"], *record.get("baselines", ())):
        arrays = read_arrays(folder / model["per_image"])
        stored = {"keys": arrays.pop("keys").tolist(), "metrics": list(model["metrics"])}
        expected = {"keys": view.image_keys, "metrics": [metric_name(name) for name in names]}
        kept = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for name, part in kept.items():
            metric, subset = split_subset(name)
            if name == "labels":
                stored[name], expected[name] = part.tolist(), view.labels_N.tolist()
            if is_retrieval(name):
                stored[f"{name} queries"], expected[f"{name} queries"] = (~part.isnan()).tolist(), queries_N.tolist()
            if metric == SUPERCLASS and superclasses_N is not None:
                of_N = images_of(subset, view.labels_N, view.class_names, dataset.test_subsets())
                stored[name], expected[name] = part.tolist(), superclasses_N[of_N].tolist()
        yield from differing(f"{what} {model['per_image']}", stored, expected)
        found = kept_metrics(kept, view.class_names, dataset, names)
        metrics = {name: model["metrics"][name] for name in found}
        yield from differing(f"{what} {model['per_image']}", metrics, found, partial(math.isclose, rel_tol=CLOSE))
        if "embeddings_sha256" in model:
            embeddings_ND = torch.from_numpy(read_arrays(folder / EMBEDDINGS / model["per_image"])["embeddings"])
            _, found = test_metrics(
                embeddings_ND, view.labels_N, view.class_names, dataset, names, superclasses_N, protocol
            )
            metrics = {name: model["metrics"][name] for name in found}
            close = partial(math.isclose, rel_tol=RECOMPUTED)
            yield from differing(f"{what} {EMBEDDINGS}/{model['per_image']}", metrics, found, close)
