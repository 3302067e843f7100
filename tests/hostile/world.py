"""The world that is attacked: a finished search, a model, an index; and a secret, a victim folder, a listening port."""

import json
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from unicodedata import category

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow.parquet import write_table
from safetensors.numpy import save_file
from support.finished_search import recorded, run_here
from support.mlflow_database import write_migrated
from support.refusals import GOOD
from support.small_search import draw_folder, small_search
from support.trees import make_tree

from search.driver.synchronise import make_projection, synchronise
from trainables.inference.embedder import load_model
from trainables.inference.index import ImageIndex

LOSSES = ("proxy_anchor", "pnp")
CAMPAIGN = """\
name: camp
study: what is varied
base: {dataset: {name: glyphs}, losses: [pnp]}
vary: {dim: {small: {model.embedding_dim: 8}, large: {model.embedding_dim: 16}}}
table: {rows: [loss]}
"""
"""A correct campaign file."""


def make_origin(folder: Path) -> Path:
    """Write the finished search ``small`` below ``runs``, an index, and a file of every kind that commands read.

    Its user's ledger is in ``state``.
    """
    images, runs = draw_folder(folder / "images", images=6), folder / "runs"
    training = {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16}
    few = {"search": {"trials": 2}, "selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}}
    write_migrated(runs / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        (search,) = run_here(runs, [small_search(images, training=training, losses=list(LOSSES), **few)])
        with closing(search):
            synchronise(recorded(search), make_projection(search.plan))
    paths = sorted(images.glob("*/*.png"))
    model = load_model(str(runs / "small" / "models" / LOSSES[0]), device="cpu")
    ImageIndex.of(model.embed(paths), [*map(str, paths)], model).save(str(folder / "index"))
    shutil.copy(paths[0], folder / "image.png")
    (folder / "row.yaml").write_text(GOOD)
    (folder / "camp.yaml").write_text(CAMPAIGN)
    rows = [f"{path.relative_to(folder)},{path.parent.name}" for path in paths]
    (folder / "list.csv").write_text("\n".join(["path,class", *rows]))
    vectors, labels = np.eye(40, dtype="f4"), [f"c{row // 5}" for row in range(40)]
    np.savez(folder / "own.npz", embeddings=vectors, labels=labels)
    write_table(pyarrow.table({"embeddings": [*vectors], "labels": labels}), folder / "own.parquet")
    save_file({"embeddings": vectors}, folder / "own.safetensors", {"labels": json.dumps(labels)})
    torch.save({"conv1.weight": torch.zeros(2)}, folder / "weights.pth")
    for name in ("cub200", "cars196", "sop", "inaturalist"):
        make_tree(name, folder / name, images_per_class=2)
    return folder


@dataclass
class World:
    """Everything below ``folder``.

    Attributes:
        port: a port that no command may contact; ``heard`` is what it heard.
        secret: a file that no command may open.
        secret_word: its content.
        variable: the value of the environment variable ``ATTACK_SECRET``, which no command may tell.
        victim: a folder that no command may change.
        module: a module that no command may import.
        canary: the file that the module, or a shell, creates.
        origin: the folder that is copied: a finished search and everything else that commands read.
    """

    folder: Path
    port: int
    heard: list[bytes]
    secret_word: str = "the-content-of-a-private-file"
    variable: str = "the-value-of-a-variable"
    module: str = "attack_canary"

    def __post_init__(self) -> None:
        self.secret, self.canary = self.folder / "private" / "key.txt", self.folder / "canary"
        self.victim, self.origin = self.folder / "victim", self.folder / "origin"

    def begin(self) -> None:
        """Make everything; ``modules`` is a folder for Python's path."""
        make_origin(self.origin)
        trials = self.victim / "small" / "trials" / "pnp" / "0000"
        for folder in (trials, self.secret.parent, self.folder / "modules"):
            folder.mkdir(parents=True)
        (trials / "precious.txt").write_text("years of work")
        self.secret.write_text(self.secret_word)
        (self.folder / "modules" / f"{self.module}.py").write_text(
            f"import pathlib\npathlib.Path({str(self.canary)!r}).touch()\n\n\nclass Boom:\n    pass\n"
        )

    def harm(self, said: str) -> str:
        """Return what a command with output ``said`` did that none may do."""
        victims = [path.read_text() for path in self.victim.rglob("*.txt")]
        told = [word for word in (self.secret_word, self.variable) if word in said]
        printed = {letter for letter in said if category(letter) in ("Cc", "Cf", "Cs")} - {"\n", "\t"}
        found = {
            "executed": self.canary.exists(),
            "contacted": self.heard,
            "changed": victims != ["years of work"],
            "told": told,
            "printed": sorted(printed),
            "raised": "Traceback (most recent call last)" in said,
        }
        return ", ".join(f"{what}: {problem}" for what, problem in found.items() if problem)
