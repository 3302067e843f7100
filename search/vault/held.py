"""The folder of a vault: its test items, its policy, its key, and the ledger of its openings.

Only its owner may read it (mode 0700). It holds:

- ``vault.json``: the policy (:class:`Policy`), which the owner may edit, and the salt;
- ``key``: the private key, 32 bytes;
- ``test.json`` and ``test/``: the test items under neutral names, with their classes and marks;
- ``ledger.jsonl``: a line for each opening, written before its first item is read;
- ``openings/``: what was asked for in each opening, and the answer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from search.selection import LedgerFile
from search.vault.protocol import public_key
from trainables.common.errors import InvalidInput, listed
from trainables.common.files import read_json, reading
from trainables.data.dataset import Dataset
from trainables.data.images import read_image
from trainables.data.store.store_spec import StoreSpec
from trainables.metrics import is_own, largest_k, split_subset, superclass_metrics, unknown_metrics

CONFIG, KEY, TEST, LEDGER, OPENINGS = "vault.json", "key", "test.json", "ledger.jsonl", "openings"
FOLDER, VECTORS = "test", "vectors.npy"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a vault answers.

    Attributes:
        openings: the number of openings, over all searches.
        models: the most models of an opening.
        by_class: True if values by class are answered, which intervals need.
        labels_only: True if the items are handed out without labels, and embeddings of them are scored.
        seconds, memory_gb: the limits of a model.
        message_gb: the limit of a request.
        device: where models are scored.
    """

    openings: int = 1
    models: int = 256
    by_class: bool = True
    labels_only: bool = False
    seconds: float = 3600.0
    memory_gb: float = 16.0
    message_gb: float = 8.0
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class HeldItems(Dataset):
    """The test items of a vault: images in files, or the rows of an array. Keys and classes have neutral names."""

    vault: str

    @cached_property
    def _content(self) -> Mapping[str, Any]:
        with reading(path := Path(self.vault, TEST)):
            return read_json(path)

    @cached_property
    def _vectors(self) -> np.ndarray:
        return np.load(Path(self.vault, FOLDER, VECTORS), allow_pickle=False)

    def __len__(self) -> int:
        return sum(map(len, self.classes().values()))

    def classes(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(keys) for name, keys in self._content["classes"].items()}

    def identity(self) -> str:
        return f"vault {self._content['name']}"

    def stamp(self, key: str) -> str:
        return key  # the items of a vault do not change

    def features(self) -> int | None:
        return self._content["features"]

    def read(self, key: str) -> np.ndarray:
        return read_image(Path(self.vault, FOLDER, key)) if self.features() is None else self._vectors[int(key)]

    def parts(self) -> Mapping[str, str]:
        return self._content["parts"]

    def cameras(self) -> Mapping[str, str]:
        return self._content["cameras"]

    def superclasses(self) -> Mapping[str, str] | None:
        return self._content["superclasses"]

    def test_subsets(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(classes) for name, classes in self._content["subsets"].items()}

    def store(self, short_side: int, cache: str) -> StoreSpec:
        """Return the request for the decoded items, scaled down to a short side of ``short_side`` pixels."""
        return StoreSpec(dataset=self, class_names=tuple(self.classes()), short_side=short_side, cache=cache)


@dataclass(frozen=True)
class Vault:
    """The vault in ``folder``.

    Raises:
        InvalidInput: there is none, or its files are damaged.
    """

    folder: Path

    @cached_property
    def _config(self) -> dict[str, Any]:
        path = self.folder / CONFIG
        if not path.is_file():
            raise InvalidInput(f"{self.folder} is not a vault: it has no {CONFIG}; `holdout vault make` makes one.")
        with reading(path):
            content = read_json(path)
            return {**content, "policy": Policy(**content["policy"])}

    @property
    def policy(self) -> Policy:
        return self._config["policy"]

    @property
    def private_key(self) -> bytes:
        return (self.folder / KEY).read_bytes()

    @cached_property
    def items(self) -> HeldItems:
        return HeldItems(vault=str(self.folder))

    @property
    def ledger(self) -> LedgerFile:
        return LedgerFile(self.folder / LEDGER)

    def store(self, short_side: int) -> Path:
        """Find or build the store of the decoded test items."""
        try:
            return self.items.store(short_side, str(self.folder / "cache")).make()
        except InvalidInput as error:  # it names items, and an answer does not
            raise RuntimeError("The test items cannot be read.") from error

    def openings(self) -> dict[str, dict[str, Any]]:
        """Return the line of each opening by the name of its folder, in order."""
        return {line["opened"]: line for line in self.ledger.lines()}

    def description(self, metrics: list[str]) -> dict[str, Any]:
        """Return what the vault says of itself to a search that asks for ``metrics``, as JSON types.

        The digest of its test items is salted: equal ones of other vaults have others.
        """
        policy = self.policy
        return {
            "key": public_key(self.private_key),
            "test": self._config["test"],
            "features": self.items.features(),
            "classes": len(self.items.classes()),
            "items": len(self.items),
            "by_class": policy.by_class,
            "labels_only": policy.labels_only,
            "openings": policy.openings,
            "opened": len(self.openings()),
            "problems": [*self._metric_problems(metrics)],
        }

    def _metric_problems(self, metrics: list[str]) -> Iterator[str]:
        """Yield sentences on ``metrics`` that the vault does not compute."""
        base_of, subsets = {name: split_subset(name) for name in metrics}, (None, *self.items.test_subsets())
        refused = {name for name, (_, part) in base_of.items() if is_own(name) or part not in subsets}
        refused |= {name for name, (base, _) in base_of.items() if unknown_metrics([base])}
        if self.items.superclasses() is None:
            refused |= {*superclass_metrics(metrics)}
        if refused:
            yield f"metrics: {listed(sorted(refused))} is your own code, or not of the vault's items; leave it out."
        elif (k := largest_k(metrics)) >= len(self.items):
            yield f"metrics: k = {k} needs more than {k} {self.items.noun}; name a smaller k."
