"""Which library searches neighbours, and in which precision.

Shapes: Q queries, N images of the gallery, D embedding.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from trainables.errors import InvalidInput
from trainables.metrics import ranking
from trainables.metrics.ranking import SEARCH, faiss_for, full_float32, nearest

CPU = torch.device("cpu")


@pytest.mark.parametrize(("chosen", "searches"), [(None, "faiss"), ("", "faiss"), ("faiss", "faiss"), ("torch", None)])
def test_the_environment_chooses_the_library(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, searches: str | None
) -> None:
    monkeypatch.delenv(SEARCH, raising=False)
    if chosen is not None:
        monkeypatch.setenv(SEARCH, chosen)
    found = faiss_for(CPU)
    assert (found.__name__ if isinstance(found, ModuleType) else None) == searches


@pytest.mark.parametrize(
    ("chosen", "device", "words"),
    [
        ("annoy", "cpu", "HOLDOUT_SEARCH must be faiss or torch, or unset; it is 'annoy'"),
        ("faiss", "cuda", "this faiss has no GPU"),
    ],
)
def test_a_wrong_choice_is_a_mistake(chosen: str, device: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEARCH, chosen)
    with pytest.raises(InvalidInput, match=words):
        faiss_for(torch.device(device))


@pytest.mark.parametrize("chosen", ["", "faiss"])
def test_a_faiss_that_fails_to_load_is_told(
    tmp_path: Path, chosen: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A faiss-gpu without CUDA's libraries raises RuntimeError at its import."""
    (tmp_path / "faiss.py").write_text('raise RuntimeError("libcudart.so.12 is missing")\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faiss", raising=False)
    monkeypatch.setenv(SEARCH, chosen)
    ranking._import_faiss.cache_clear()
    try:
        if chosen:
            with pytest.raises(InvalidInput, match=r"cannot be imported \(libcudart.so.12 is missing\)"):
                faiss_for(CPU)
        else:
            assert nearest(torch.eye(3), torch.eye(3), 1)[1].flatten().tolist() == [0, 1, 2]
            assert "faiss cannot be imported (libcudart.so.12 is missing); torch searches" in caplog.text
    finally:
        ranking._import_faiss.cache_clear()


SETTINGS = (
    torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn, torch.backends.mkldnn.matmul,
    torch.backends.mkldnn.conv,
)  # fmt: skip


@pytest.fixture(params=["ieee", "tf32", "high"])
def allowed(request: pytest.FixtureRequest) -> Iterator[str]:
    """Allow a precision by operation, or ("high") for all products; put everything back."""
    before = [setting.fp32_precision for setting in SETTINGS]
    if request.param == "high":
        torch.set_float32_matmul_precision("high")
    else:
        torch.backends.cuda.matmul.fp32_precision = request.param
        torch.backends.cudnn.conv.fp32_precision = "ieee"
    yield request.param
    if request.param == "high":
        torch.set_float32_matmul_precision("highest")
    for setting, precision in zip(SETTINGS, before, strict=True):
        setting.fp32_precision = precision


def test_the_precision_that_is_allowed_is_restored(allowed: str) -> None:
    """PyTorch's older settings raise RuntimeError where its newer ones differ by operation."""
    before = [setting.fp32_precision for setting in SETTINGS]
    with full_float32():
        assert {setting.fp32_precision for setting in SETTINGS} == {"ieee"}
    assert [setting.fp32_precision for setting in SETTINGS] == before
    assert allowed != "high" or torch.get_float32_matmul_precision() == "high"
