"""The folder of a vault, and its making: the test items, the policy, the key, and the ledger of openings.

Only its owner may read it (mode 0700). It holds:

- ``vault.json``: the policy (:class:`Policy`), which the owner may edit, and the salt;
- ``key``: the private key, 32 bytes;
- ``test.json`` and ``test/``: the test items under neutral names, with their classes and marks;
- ``ledger.jsonl``: a line for each opening, written before its first item is read;
- ``openings/``: what was asked for in each opening, and the answer.
"""

import csv
import io
import random
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from search.records import LedgerFile, images_in
from search.vault.protocol import public_key
from search.vault.sandbox import READABLE
from trainables.common.errors import InvalidInput, listed, raise_if_any
from trainables.common.files import digest_of, draft_of, json_text, read_json, reading
from trainables.common.storage import full_disk_errors
from trainables.data.dataset import TRAIN, Dataset, ItemDataset
from trainables.data.images import read_image
from trainables.data.sets.features import EMBEDDINGS, GROUPS, IDS, LABELS
from trainables.data.sets.folders import RootedDataset
from trainables.data.sets.manifest import CAMERA, CLASS, GROUP, PART, PATH
from trainables.data.split import check_classes, split_dataset
from trainables.data.store.build import read_item
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
    """The vault in ``folder``; raises if there is none, or its files are damaged."""

    folder: Path

    def __post_init__(self) -> None:
        if not (self.folder / CONFIG).is_file():
            raise InvalidInput(f"{self.folder} is not a vault: it has no {CONFIG}; `holdout vault make` makes one.")

    @cached_property
    def _config(self) -> dict[str, Any]:
        with reading(path := self.folder / CONFIG):
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
        known = {name for name, (base, part) in base_of.items() if part in subsets and not unknown_metrics([base])}
        refused = {name for name in metrics if is_own(name) or name not in known}
        if self.items.superclasses() is None:
            refused |= {*superclass_metrics(metrics)}
        if refused:
            yield f"metrics: {listed(sorted(refused))} is your own code, or not of the vault's items; leave it out."
        elif (k := largest_k(metrics)) >= len(self.items):
            yield f"metrics: k = {k} needs more than {k} {self.items.noun}; name a smaller k."


# Making a vault: the data set is split, the training half is handed out, and the test half stays with its owner.

LISTED, VECTORS_FILE = "data.csv", "data.npz"
"""The file of a training half of images, and that of one of vectors."""


def make_vault(dataset: Dataset, to: Path, policy: Policy, *, seed: int) -> str:
    """Write the vault of ``dataset`` into the folder ``to``, which only its owner may read; return its public key.

    The test classes are those of a search with ``seed``. Beside the vault, to be handed out, are the training half
    (``TO-training``) and with ``labels_only`` the test items without labels (``TO-items``): all complete, or none.

    Raises:
        InvalidInput: a folder exists, or the data set has too few classes, unreadable items, or items of other kinds.
    """
    if isinstance(dataset, ItemDataset):
        raise InvalidInput("The data set has items that are neither images nor vectors; a vault holds only these two.")
    if open_to := [place for place in READABLE if to.is_relative_to(place)]:
        raise InvalidInput(f"{to} is below {open_to[0]}, which the processes that score can read; name another folder.")
    names = ("", "-training", "-items") if policy.labels_only else ("", "-training")
    folders = [to.with_name(f"{to.name}{name}") for name in names]
    raise_if_any([f"{folder} exists already; name a folder that does not." for folder in folders if folder.exists()])
    classes = dataset.classes()
    split = split_dataset(dataset, classes, ratio=0.9, seed=seed)
    check_classes(split, dataset, classes)
    key, salt = secrets.token_bytes(32), secrets.token_hex(16)
    with _together(folders) as (draft, *others):
        draft.chmod(0o700)
        half = {*split.train, *split.validation}
        _hand_out(dataset, [(name, key) for name, keys in classes.items() if name in half for key in keys], others[0])
        content = _hold(dataset, {name: classes[name] for name in split.test}, draft)
        (draft / TEST).write_text(json_text(content))
        images = images_in(HeldItems(vault=str(draft)).store(1, str(draft / "cache")).make())
        (draft / KEY).touch(mode=0o600)
        (draft / KEY).write_bytes(key)
        test = digest_of(f"{salt} {images.digest}".encode())
        (draft / CONFIG).write_text(json_text({"policy": asdict(policy), "salt": salt, "test": test}))
        if policy.labels_only:
            shutil.copytree(draft / FOLDER, others[1] / FOLDER)
            unlabelled = {"items": sorted(key for keys in content["classes"].values() for key in keys)}
            neutral = {"classes": unlabelled, "parts": {}, "cameras": {}, "superclasses": None, "subsets": {}}
            (others[1] / TEST).write_text(json_text({**content, **neutral}))
    return public_key(key)


@contextmanager
def _together(folders: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield empty folders beside ``folders``, which are renamed to them at the end, or removed on an error."""
    drafts = [*map(draft_of, folders)]
    try:
        with full_disk_errors(folders[0]):
            for draft in drafts:
                draft.mkdir(parents=True)
            yield drafts
        for draft, folder in zip(drafts, folders, strict=True):
            draft.rename(folder)
    finally:
        for draft in drafts:
            shutil.rmtree(draft, ignore_errors=True)


def _hand_out(dataset: Dataset, items: Sequence[tuple[str, str]], folder: Path) -> None:
    """Write the training half, pairs of class and key, with its groups, official parts and cameras."""
    names, keys = zip(*items, strict=True)
    marks = {GROUP: dataset.groups(), PART: dataset.parts(), CAMERA: dataset.cameras()}
    if dataset.features() is not None:
        arrays = {LABELS: np.array(names), IDS: np.array(keys)}
        arrays[EMBEDDINGS] = np.stack([read_item(dataset, key) for key in keys])
        if marks[GROUP]:
            arrays[GROUPS] = np.array([marks[GROUP][key] for key in keys])
        np.savez(folder / VECTORS_FILE, **arrays)  # type: ignore[arg-type]
        return
    columns = [name for name, found in marks.items() if any(key in found for key in keys)]
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow([PATH, CLASS, *columns])
    for number, (name, key) in enumerate(items):
        path = key if isinstance(dataset, RootedDataset) else f"images/{number:06d}.png"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        _copy(dataset, key, folder / path)
        lines.writerow([path, name, *(marks[column].get(key, TRAIN) for column in columns)])
    (folder / LISTED).write_text(text.getvalue())


def _hold(dataset: Dataset, classes: Mapping[str, Sequence[str]], folder: Path) -> dict[str, Any]:
    """Write the test half under drawn, neutral names, in its order, and return the content of ``test.json``."""
    draw = random.SystemRandom()
    (folder / FOLDER).mkdir()
    numbers = draw.sample(range(len(classes)), len(classes))
    class_of = {name: f"class {number:04d}" for name, number in zip(classes, numbers)}
    keys = [key for of_class in classes.values() for key in of_class]
    shuffled = draw.sample(keys, len(keys))
    if dataset.features() is not None:
        name_of = {key: str(row) for row, key in enumerate(shuffled)}
        vectors = np.stack([read_item(dataset, key) for key in shuffled])
        np.save(folder / FOLDER / VECTORS, vectors, allow_pickle=False)
    else:
        is_file = isinstance(dataset, RootedDataset)
        suffix = {key: Path(key).suffix.lower() if is_file else ".png" for key in keys}
        name_of = {key: f"{row:06d}{suffix[key]}" for row, key in enumerate(shuffled)}
        for key, name in name_of.items():
            _copy(dataset, key, folder / FOLDER / name)
    superclass_of = dataset.superclasses()
    return {
        "name": secrets.token_hex(16),
        "features": dataset.features(),
        "classes": {class_of[name]: [name_of[key] for key in of_class] for name, of_class in classes.items()},
        "parts": _renamed(dataset.parts(), name_of),
        "cameras": _renamed(dataset.cameras(), name_of),
        "superclasses": None if superclass_of is None else _renamed(superclass_of, class_of),
        "subsets": {
            subset: [class_of[name] for name in names if name in class_of]
            for subset, names in dataset.test_subsets().items()
        },
    }


def _renamed(marks: Mapping[str, str], name_of: Mapping[str, str]) -> dict[str, str]:
    return {name_of[key]: mark for key, mark in marks.items() if key in name_of}


def _copy(dataset: Dataset, key: str, path: Path) -> None:
    """Copy the file of an image, or write one where the data set reads images in another way than from a file."""
    if isinstance(dataset, RootedDataset) and type(dataset).read is RootedDataset.read:
        shutil.copyfile(dataset.path(key), path)  # without its times
    else:
        with path.open("wb") as file:
            Image.fromarray(read_item(dataset, key)).save(file, "PNG")
