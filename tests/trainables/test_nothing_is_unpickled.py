"""Loading a pickle may run any code: it is never run in place of a checkpoint, a store, or code that a model names.

``hostile.test_records`` puts the same files where commands read weights, models, indexes and features.
"""

import io
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from hostile.inputs import Runs, pickled
from support.small_model import SmallModel

import holdout
from trainables.common.errors import InvalidInput
from trainables.common.files import read_arrays, reading
from trainables.data.store.contents import ARRAYS, read_contents
from trainables.training.checkpoints import Checkpoints


@pytest.fixture
def proof(tmp_path: Path) -> Path:
    return tmp_path / "it-ran"


def object_arrays(value: object) -> bytes:
    content = io.BytesIO()
    objects = np.array([value], dtype=object)
    np.savez(content, labels_N=objects, sizes_N2=objects)
    return content.getvalue()


def in_an_archive(value: object) -> bytes:
    with ZipFile(content := io.BytesIO(), "w") as archive:
        archive.writestr("labels_N.npy", pickle.dumps(value))
    return content.getvalue()


FORMS: dict[str, Callable[[object], bytes]] = {
    "pickle": lambda value: pickle.dumps(value, protocol=2),
    "torch.save": pickled,
    "legacy torch.save": lambda value: pickled(value, zipped=False),
    "arrays of objects": object_arrays,
    "a pickle in an archive": in_an_archive,
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@each_form
def test_a_checkpoint_to_resume(form: Callable[[object], bytes], proof: Path, tmp_path: Path) -> None:
    attempt = tmp_path / "training" / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / "last.pt").write_bytes(form(Runs(proof)))
    assert Checkpoints(str(attempt.parent), "d").load_last() is None
    assert not proof.exists()


@each_form
def test_a_store_of_images(form: Callable[[object], bytes], proof: Path, made: SmallModel, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(made.store.make(), store)
    (store / ARRAYS).write_bytes(form(Runs(proof)))
    with pytest.raises(InvalidInput, match="There is no readable image store"):
        read_contents(store)
    assert not proof.exists()


def test_a_model_that_names_code(
    made: SmallModel, proof: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code is imported only with ``trust_code``, and only a network may be named by an import path."""
    (tmp_path / "stranger.py").write_text(f"from pathlib import Path\nPath({str(proof)!r}).touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    for key in ("backbone", "pooling", "head_init"):
        folder = tmp_path / key
        shutil.copytree(made.folder, folder)
        described = json.loads((folder / "model.json").read_text())
        described["model"][key] = "stranger:Net"
        (folder / "model.json").write_text(json.dumps(described))
        with pytest.raises(InvalidInput):
            holdout.load(folder, device="cpu")
        assert not proof.exists()
    with pytest.raises(InvalidInput, match="stranger has no Net"):
        holdout.load(tmp_path / "backbone", device="cpu", trust_code=True)
    assert proof.exists()


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.arange(1_000), b=np.arange(9))
    content = (tmp_path / "a.npz").read_bytes()
    for length in range(0, len(content), 37):
        with pytest.raises(InvalidInput, match="is damaged"), reading("it"):
            read_arrays(content[:length], "a", "b")
