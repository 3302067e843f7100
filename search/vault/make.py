"""Making a vault: the data set is split, the training half is handed out, and the test half stays with its owner."""

import csv
import io
import random
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from search.selection import images_in
from search.vault.held import CONFIG, FOLDER, KEY, TEST, VECTORS, HeldItems, Policy
from search.vault.protocol import public_key
from search.vault.sandbox import READABLE
from trainables.common.errors import InvalidInput, raise_if_any
from trainables.common.files import digest_of, draft_of, json_text
from trainables.common.storage import full_disk_errors
from trainables.data.dataset import TRAIN, Dataset, ItemDataset
from trainables.data.sets.features import EMBEDDINGS, GROUPS, IDS, LABELS
from trainables.data.sets.folders import RootedDataset
from trainables.data.sets.manifest import CAMERA, CLASS, GROUP, PART, PATH
from trainables.data.split import check_classes, split_dataset
from trainables.data.store.build import read_item

LISTED, VECTORS_FILE = "data.csv", "data.npz"
"""The file of a training half of images, and that of one of vectors."""


def make_vault(dataset: Dataset, to: Path, policy: Policy, *, seed: int) -> str:
    """Write the vault of ``dataset`` into the folder ``to``, which only its owner may read; return its public key.

    The test classes are those of a search on all of it with ``seed``. Beside the vault, to be handed out, are the
    training half (``TO-training``) and with ``labels_only`` the test items without labels (``TO-items``). All folders
    are complete, or none is there.

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
    """Write the test half under neutral names, and return the content of ``test.json``.

    Classes and the items of each stay in their order, of which clusterings depend; their numbers are drawn.
    """
    draw = random.SystemRandom()
    (folder / FOLDER).mkdir()
    class_of = {
        name: f"class {number:04d}" for name, number in zip(classes, draw.sample(range(len(classes)), len(classes)))
    }
    keys = [key for of_class in classes.values() for key in of_class]
    shuffled = draw.sample(keys, len(keys))
    if dataset.features() is not None:
        name_of = {key: str(row) for row, key in enumerate(shuffled)}
        vectors = np.stack([read_item(dataset, key) for key in shuffled])
        np.save(folder / FOLDER / VECTORS, vectors, allow_pickle=False)
    else:
        is_file = isinstance(dataset, RootedDataset)
        suffixes = {key: Path(key).suffix.lower() if is_file else ".png" for key in keys}
        name_of = {key: f"{row:06d}{suffixes[key]}" for row, key in enumerate(shuffled)}
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
