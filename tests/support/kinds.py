"""The kinds of searches: one table of small search files, each with the data that it needs."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from support.bare_networks import BACKBONE, TRAINING, save_convnet
from support.commands import ROOT, summary
from support.finished_search import finish
from support.small_search import GLYPHS, draw_folder, draw_glyphs, small_search
from support.trees import make_tree

from search.records.campaign import Campaign
from search.results.campaign import CampaignResult

FEATURES = 12
DISTRACTORS = "class-15"
"""A test class of ``by_group`` that is in the gallery only."""

ONE_EPOCH = {"epochs": 1, "batch_size": 12, "images_per_class": 3, "image_size": 16}
FEW = {"test": ["recall_at_1", "map_at_r"]}
"""Metrics that are computed at once; all of them are those of the first kind."""
SHORT: dict[str, Any] = {"selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 2}}
OF_LISTS = ["recall_at_1", "map_at_r", "recall_at_1-small", "map_at_r-small", "recall_at_2-medium", "nmi-medium",
            "dists_intra-large", "recall_at_1-large"]  # fmt: skip
OF_SUPERCLASSES = ["nmi_super", "f1_super"]
OF_QUERIES = ["recall_at_1", "map_at_r", "r_precision", "nmi"]


def feature_file(folder: Path) -> Path:
    """Write embeddings of 16 classes that differ in the first half of the features only."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(16, FEATURES)) * (np.arange(FEATURES) < FEATURES // 2)
    embeddings = np.repeat(centres, 10, axis=0) + rng.normal(size=(160, FEATURES)) * 0.8
    labels = np.repeat([f"class-{number:02d}" for number in range(16)], 10)
    np.savez(folder / "mine.npz", embeddings=embeddings, labels=labels, ids=[f"text {row}" for row in range(160)])
    return folder / "mine.npz"


def on_features(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a search on embeddings that somebody has computed."""
    content = {
        "dataset": {"name": "features", "file": str(feature_file(folder))},
        "training": {"epochs": 2, "batch_size": 20, "images_per_class": 5},
        "losses": ["contrastive"],
        "space": {"model": {"head": ["linear", "mlp"]}},
        "metrics": FEW,
        **changes,
    }
    return small_search(folder, **content)


def on_frozen(folder: Path) -> dict[str, Any]:
    """Return a search on the features of a frozen backbone, whose head hardly learns, so that no training is better."""
    return small_search(
        draw_glyphs(folder / "images"),
        model={"backbone": BACKBONE, "freeze": "backbone", "embedding_dim": 8, "weights": str(save_convnet(folder))},
        training={**TRAINING, "epochs": 2, "lr": 1e-8},
        losses=["proxy_anchor"],
        space={"model": {"head": ["linear", "mlp"], "embedding_dim": [8, 16]}},
        metrics=FEW,
        **SHORT,
    )


def example(name: str, **changes: Any) -> dict[str, Any]:
    """Return the search file of an example of a user's own training, with a short selection and test."""
    content: dict[str, Any] = yaml.safe_load((ROOT / f"examples/{name}.yaml").read_text())
    return {**content, "search": {"trials": 3}, "metrics": FEW, **SHORT, **changes}


def own(name: str, folder: Path) -> dict[str, Any]:
    """Return the search of an example on embeddings."""
    dataset = {"name": "features", "file": str(feature_file(folder))}
    if name == "function_training":
        return example(name, dataset=dataset, training={"epochs": 3})
    trainable = f"examples.trainers.{name}:{name}"
    content = example("function_training", dataset=dataset, trainable=trainable, training={"epochs": 1})
    return {**content, "name": name}


def trade(name: str, search: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a search in which quality and weight contradict each other."""
    return {
        "name": name,
        "trainable": "support.own_trainings:Trade",
        "dataset": {"name": "support.own_trainings:ManyRecords"},
        "training": {"epochs": 1},
        "search": {"trials": 8, "pruner": "none", **search},
        "split": {"ratio": 0.6},
        "selection": {"finalists": 2, "seeds": 2},
        "final": {"seeds": 2},
        **changes,
    }


QUALITY, WEIGHT = "support.own_trainings:quality", "support.own_trainings:weight"


def by_group(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a search on a manifest: classes 0 and 1 share a group, the last eight are query and gallery."""
    file = folder / "x.csv"
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["path", "class", "group", "part", "camera"])
        for path in sorted(draw_folder(folder / "images", images=7).glob("*/*")):
            name, at = path.parent.name, int(path.stem)
            number = int(name[-2:])
            part = "train" if number < 8 else "gallery" if name == DISTRACTORS or at % 3 else "query"
            group = "shop" if number < 2 and at == 0 else str(path)
            writer.writerow([str(path.relative_to(folder)), name, group, part, str(at % 2)])
    content = {
        "dataset": {"name": "manifest", "file": str(file), "ignore_same_camera": True},
        "losses": ["pnp"],
        "training": ONE_EPOCH,
        "search": {"trials": 2},
        "metrics": {"validation": ["recall_at_1", "map_at_r"], "test": OF_QUERIES},
        **SHORT,
        **changes,
    }
    return small_search(folder, **content)


def on_superclasses(folder: Path) -> dict[str, Any]:
    """Return a search on products of two superclasses, with a superclass metric as objective."""
    root = make_tree("sop", folder / "sop", classes_per_half=8, images_per_class=6)
    return small_search(
        root,
        dataset={"name": "sop", "root": str(root), "subset": True},
        losses=["pnp"],
        split={"ratio": 0.5},
        training={**ONE_EPOCH, "epochs": 2},
        search={"trials": 2, "objective": "nmi_super"},
        metrics={"validation": OF_SUPERCLASSES, "test": OF_SUPERCLASSES},
        **SHORT,
    )


def on_lists(folder: Path) -> dict[str, Any]:
    """Return a search with three test lists: four vehicles in the small, eight in the medium, all in the large one."""
    root = make_tree("vehicleid", folder / "vehicles", classes_per_half=12, images_per_class=4)
    return small_search(
        root,
        dataset={"name": "vehicleid", "root": str(root), "subset": True},
        losses=["pnp"],
        training=ONE_EPOCH,
        search={"trials": 2},
        metrics={"validation": ["recall_at_1"], "test": OF_LISTS},
        **SHORT,
    )


KINDS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "images": lambda folder: {**GLYPHS, "name": "small", "final": {"seeds": 2}},
    "features": on_features,
    "frozen backbone": on_frozen,
    "LoRA": lambda folder: {
        **GLYPHS, **SHORT, "name": "small", "losses": ["proxy_anchor"], "metrics": FEW,
        "model": {"backbone": "examples.tiny_network:TinyNetwork", "embedding_dim": 8, "lora": {"rank": 2}},
        "space": {"model": {"lora.rank": [2, 4], "lora.alpha": {"low": 4, "high": 32, "log": True}}}},
    "own class": lambda folder: example("texts", training={"epochs": 2}, split={"ratio": 0.6}),
    "own function": lambda folder: own("function_training", folder),
    "own class without epochs": lambda folder: own("discriminant", folder),
    "groups, queries and a gallery": by_group,
    "superclasses": on_superclasses,
    "test lists": on_lists,
    "a gallery of training images": lambda folder: {
        **GLYPHS, **SHORT, "name": "small", "losses": ["pnp"], "split": {"folds": 2},
        "metrics": {"gallery": "training_half", "validation": ["recall_at_1", "dists_ratio"]}},
    "merged and wrong labels": lambda folder: {
        **GLYPHS, **SHORT, "name": "small", "losses": ["pnp"], "split": {"merge": 2, "label_noise": 0.2},
        "metrics": FEW, "final": {"seeds": 2, "within": 1.0}},
    "folds": lambda folder: on_features(
        folder, split={"folds": 2}, selection={"finalists": 2, "seeds": 1, "on": "split"}),
    "constraints": lambda folder: trade("bound", {"objective": QUALITY, "constraints": {WEIGHT: "< 0.5"}}),
}  # fmt: skip
"""Kind of search -> function that writes its data into a folder and returns its search file.

So few classes validate that the choice is confirmed on halves, also of folds, where a file does not say otherwise.
"""


@dataclass(frozen=True)
class Finished:
    """A search that is done, with its file; not to be changed."""

    content: dict[str, Any]
    runs: Path

    @property
    def name(self) -> str:
        return str(self.content["name"])

    @property
    def folder(self) -> Path:
        return self.runs / self.name

    @property
    def summary(self) -> dict[str, Any]:
        return summary(self.runs, self.name)

    @property
    def opening(self) -> dict[str, Any]:
        """Its only opening of the test classes."""
        (opening,) = json.loads((self.folder / "test.json").read_text())["openings"]
        return opening  # type: ignore[no-any-return]


Kinds = Callable[[str], Finished]
"""A function that gives the finished search of a kind."""


def finished(kind: str, folder: Path) -> Finished:
    """Run a search of a kind in ``folder``, through all of its stages."""
    (data := folder / "data").mkdir()
    content = KINDS[kind](data)
    return Finished(content, finish(folder / "runs", content))


LOT: dict[str, Any] = {
    "name": "lot",
    "study": "one part or folds",
    "base": {**GLYPHS, "losses": ["pnp"], "metrics": FEW, "final": {"seeds": 2}},
    "vary": {"split": {"fixed": {}, "folds": {"split.folds": 2}, "all": {"final.train_on": "all"}}},
    "table": {"rows": ["loss"], "metrics": ["validation", "recall_at_1"], "roles": ["default"]},
}
"""A campaign whose searches validate on one part or in two folds."""


@dataclass(frozen=True)
class FinishedCampaign:
    """A campaign that is done; not to be changed."""

    runs: Path
    campaign: Campaign
    result: CampaignResult
