"""Initial weights of a backbone, from a file, and the download of published ones.

A training downloads nothing: trials start on many machines at once, often without internet access. A file may come from
another program: its tensors may be inside a checkpoint, under a prefix, or have another library's names.
"""

import hashlib
import os
import pickle
import re
import shutil
import warnings
import zipfile
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from trainables.common.errors import Failure, InvalidInput, counted, listed, suggestion
from trainables.models.backbones import ON_HUB, Published, backbone
from trainables.models.config import IMAGENET, ModelConfig, no_imagenet_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

    Tensors = dict[str, Tensor]


SHOWN = 5  # names in an error


def weights_path(weights: Published) -> Path:
    """Return the local path of published weights, in the cache of ``torch.hub``, as torchvision's, or of the hub."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", f"{cache}/torch")
    path = Path(home, "hub", "checkpoints", weights.file).expanduser()
    if weights.hub is None or path.is_file():
        return path
    from huggingface_hub import try_to_load_from_cache  # timm, which alone names repositories, requires it

    cached = try_to_load_from_cache(weights.hub, ON_HUB)
    return Path(cached) if isinstance(cached, str) else path


def weights_file(config: ModelConfig) -> Path | None:
    """Return the file with initial weights, None for random ones; raise :class:`InvalidInput` if it is missing."""
    if config.weights is None:
        return None
    if config.weights != IMAGENET:
        path = Path(config.weights)
        if not path.is_file():
            found = f"{config.weights!r}, not a file{suggestion(path.name, [IMAGENET])}"
            raise InvalidInput(f"model.weights is {found}. Give a file, 'imagenet' or null.")
        return path
    imagenet = backbone(config.backbone).imagenet
    if imagenet is None:
        raise InvalidInput(no_imagenet_weights(config.backbone).below("model"))
    path = weights_path(imagenet)
    if not path.is_file():
        get = f"`holdout backbones {config.backbone} --download` downloads them; or save {imagenet.address} as {path}"
        raise InvalidInput(f"The ImageNet weights of {config.backbone} are not on this machine. {get}.")
    return path


@dataclass(frozen=True, kw_only=True)
class LoadedWeights:
    """The origin of a backbone's weights: ``loaded`` of the tensors of ``file``, and the names of those ``left_out``.

    ``prefix`` was removed from names in the file; ``way`` says how others were matched.
    """

    file: str
    loaded: int
    left_out: tuple[str, ...]
    prefix: str
    way: str

    @property
    def by_order(self) -> bool:
        """True if the tensors may be those of a variant of the network with other paddings or epsilons."""
        return self.way.startswith(BY_ORDER)

    def __str__(self) -> str:
        left_out = f"left out {listed(self.left_out, shown=SHOWN)}" if self.left_out else ""
        prefix = f"prefix '{self.prefix}' removed" if self.prefix else ""
        first = f"loaded {self.loaded} of {counted(self.loaded + len(self.left_out), 'tensor')} of {self.file}"
        return "; ".join(filter(None, [first, left_out, prefix, self.way]))


def _tensors(path: Path) -> "Tensors":
    """Return the dense floating-point tensors of a file by name; a tensor within dictionaries has a dotted name.

    Integers, such as counts of batches and index tables, are left out: they are never learned.
    """
    try:
        found = dict(_flat(_content(path), "", depth=5))
    except InvalidInput:
        raise
    except Exception as error:  # a file that is not a pickle may raise anything in the unpickler
        raise _unreadable(path, _reason(error)) from error
    if not found:
        raise InvalidInput(f"{path} does not hold named tensors. {SAVE}.")
    return {name: tensor for name, tensor in found.items() if tensor.is_floating_point()}


SAVE = "Save a network's state_dict() and nothing else"


def _unreadable(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(f"The weights in {path} cannot be read: {reason}.")


def _content(path: Path) -> Any:
    """Load the file at ``path``; no code in it is run."""
    import torch  # late: `holdout backbones` uses this module without torch

    with path.open("rb") as file:
        start = file.read(9)
    if not start:
        raise _unreadable(path, "the file is empty; copy it again")
    if start[8:] == b"{":  # safetensors begin with the length of a JSON
        from safetensors.torch import load_file

        return load_file(path)
    if start.startswith(b"PK"):  # today's format of torch.save
        with zipfile.ZipFile(path) as parts:
            names = parts.namelist()
        if any(name.endswith("/constants.pkl") for name in names):
            fix = "torch.save(torch.jit.load(FILE, 'cpu').state_dict(), OTHER)"
            raise _unreadable(path, f"it is a TorchScript program; write its tensors to another file, with {fix}")
        if not any(name.endswith("data.pkl") for name in names):
            raise _unreadable(path, "torch.save did not write this archive; unpack the file of weights in it")
    elif not start.startswith(b"\x80"):  # a pickle, the format before PyTorch 1.6
        raise _unreadable(path, "it is neither a .safetensors file nor one that torch.save wrote")
    # many checkpoints hold the arguments of the training; to load them runs no code
    with path.open("rb") as file, torch.serialization.safe_globals([Namespace]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # on pickles of another protocol
        return torch.load(file, map_location="cpu", weights_only=True)


def _reason(error: Exception) -> str:
    """Return the reason without PyTorch's advice to turn ``weights_only`` off, which would run the file's code."""
    text = str(error)
    if isinstance(error, OSError):
        return error.strerror or text
    if named := re.search(r"GLOBAL ([\w.]+)", text):
        return f"it holds a {named[1]}, which only code could build. {SAVE}"
    if isinstance(error, pickle.UnpicklingError) or "magic number" in text:
        return f"it is a pickle of something else than tensors. {SAVE}"
    return f"it is damaged ({text.partition('. ')[0].rstrip('.') or type(error).__name__}); copy it again"


def _flat(content: Any, above: str, depth: int) -> "Iterator[tuple[str, Tensor]]":
    """Yield the tensors in ``depth`` levels of dictionaries with string keys; an optimizer's state has numbers."""
    import torch

    if not isinstance(content, Mapping) or not depth:
        return
    for key, value in content.items():
        if isinstance(value, torch.Tensor) and isinstance(key, str):
            if value.layout == torch.strided and not value.is_meta:  # else it has no memory of numbers to compare
                yield f"{above}{key}", value
        elif isinstance(key, str):
            yield from _flat(value, f"{above}{key}.", depth - 1)


SPELLINGS = tuple(
    (re.compile(f"(?:^|(?<=\\.)){pattern}"), name)
    for pattern, name in (
        # torchvision's DenseNets, in its published files
        (r"(denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2"),
        # torchvision's vision transformers, in its files and in its networks, as timm and DINO name the same tensors
        (r"mlp\.(?:linear_1|0)\.", "mlp.fc1."),
        (r"mlp\.(?:linear_2|3)\.", "mlp.fc2."),
        (r"encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
        (r"(blocks\.\d+)\.ln_([12])\.", r"\1.norm\2."),
        (r"self_attention\.in_proj_", "attn.qkv."),
        (r"self_attention\.out_proj\.", "attn.proj."),
        (r"class_token$", "cls_token"),
        (r"encoder\.pos_embedding$", "pos_embed"),
        (r"conv_proj\.", "patch_embed.proj."),
        (r"encoder\.ln\.", "norm."),
    )
)
"""Names that two libraries, or two versions of one, give the same tensor; both are compared in the second spelling."""

AVERAGED = ("teacher", "model_ema", "state_dict_ema", "ema")  # weights, which are preferred where a checkpoint has both


def _spelt(tensors: "Mapping[str, Any]") -> dict[str, str]:
    """Return the names of ``tensors`` by their common spelling."""
    spelt = {}
    for name in tensors:
        common = name
        for pattern, replacement in SPELLINGS:
            common = pattern.sub(replacement, common)
        spelt[name if common in spelt else common] = name
    return spelt


def _fits(found: "Tensor", needed: "Tensor") -> bool:
    return found.shape in (needed.shape, (1, *needed.shape))  # rows: vectors converted from Caffe


@dataclass(frozen=True, kw_only=True)
class _Match:
    """Names in the file by names in the network, of those that fit and of those that have another shape."""

    fitting: Mapping[str, str]
    other_shape: Mapping[str, str]
    prefix: str = ""
    way: str = ""


def _by_name(found: "Tensors", needed: "Tensors") -> _Match:
    """Match tensors by name, under the prefix with which most of them fit."""
    theirs, ours = _spelt(found), _spelt(needed)
    votes: Counter[str] = Counter({"": 0})
    for name, original in theirs.items():
        parts = name.split(".")
        for start in range(len(parts)):
            wanted = ours.get(".".join(parts[start:]))
            if wanted is not None:
                fits = _fits(found[original], needed[wanted])
                votes["".join(f"{part}." for part in parts[:start])] += len(found) if fits else 1
    prefix = max(votes, key=lambda entry: (votes[entry], not {*AVERAGED}.isdisjoint(entry.split("."))))
    pairs = {wanted: theirs[prefix + name] for name, wanted in ours.items() if prefix + name in theirs}
    fitting = {wanted: name for wanted, name in pairs.items() if _fits(found[name], needed[wanted])}
    other = {wanted: name for wanted, name in pairs.items() if wanted not in fitting}
    return _Match(fitting=fitting, other_shape=other, prefix=prefix)


def _by_order(found: "Tensors", needed: "Tensors") -> _Match | None:
    """Match tensors by their order, if shapes and kinds (``weight``, ``running_mean``) are equal one by one."""
    names = [*found]
    if [found[name].ndim for name in names[len(needed) :]] not in ([], [2], [2, 1]):  # more than a classifier
        return None
    pairs = dict(zip(needed, names))
    kinds = ((wanted.rpartition(".")[2], name.rpartition(".")[2]) for wanted, name in pairs.items())
    shapes = (needed[wanted].shape == found[name].shape for wanted, name in pairs.items())
    if len(pairs) < len(needed) or not all(shapes) or any(ours != theirs for ours, theirs in kinds):
        return None
    first = next((entry for entry in pairs.items() if entry[0] != entry[1]), ("", ""))
    way = f"{BY_ORDER}, since the names differ ({first[1]} is {first[0]})"
    return _Match(fitting=pairs, other_shape={}, way=way)


BY_ORDER = "matched by order"
"""The way of a match that any network with the same shapes would give, whatever its paddings and epsilons."""


def load_weights(backbone: "nn.Module", path: Path) -> LoadedWeights:
    """Load the weights of ``backbone`` from a file of named tensors; others, such as a classifier's, are left out.

    All tensors of the backbone must be in the file, finite and of the same shape.
    """
    found = _tensors(path)
    state = backbone.state_dict()
    needed = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    match = _by_name(found, needed)
    if len(match.fitting) < len(needed):
        by_order = _by_order(found, needed)
        if by_order is None:
            raise _refusal(path, found, needed, match)
        match = by_order
    loaded = {wanted: found[name].reshape(needed[wanted].shape) for wanted, name in match.fitting.items()}
    if wrong := [name for name, tensor in loaded.items() if not tensor.float().isfinite().all()]:
        raise InvalidInput(
            f"{counted(len(wrong), 'tensor')} in {path} with NaN or infinity ({listed(wrong, shown=SHOWN)}); "
            "give weights from before their training diverged."
        )
    used = {*match.fitting.values()}
    left_out = tuple(name for name in found if name not in used)
    if not match.way and (more := [*_of_a_variant(found, needed, match.prefix, left_out)]):
        raise InvalidInput(
            f"{path} has {counted(len(more), 'tensor')} more in layers of this backbone ({listed(more, shown=SHOWN)}), "
            "so it is of a deeper or other variant, which does not work without them: set model.backbone to that "
            "network, or remove them from the file if this one lacks them on purpose."
        )
    backbone.load_state_dict({**state, **loaded})
    return LoadedWeights(file=path.name, loaded=len(used), left_out=left_out, prefix=match.prefix, way=match.way)


_LEARNED = re.compile(
    r"(?!(\w+\.)?(fc|heads?|classifier|last_linear|logits|proj\w*|predictor)\.).*(weight|bias|gamma)|"
    r"(reg|register|storage)_tokens?"
)  # except by a classifier and a projection


def _of_a_variant(found: "Tensors", needed: "Tensors", prefix: str, left_out: Collection[str]) -> Iterator[str]:
    """Yield those ``left_out`` that are weights in parts of the network of which others are loaded."""
    parts = {name.partition(".")[0] for name in _spelt(needed)}
    for spelt, name in _spelt(found).items():
        below = spelt.removeprefix(prefix)
        # after the last layer of a sequence there may be a linear classifier
        wide = found[name].ndim > 2 or not re.fullmatch(r"\w+\.\d+\.\w+", below)
        if name in left_out and wide and _LEARNED.fullmatch(below) and below.partition(".")[0] in {*parts, below}:
            yield name


def _refusal(path: Path, found: "Tensors", needed: "Tensors", match: _Match) -> InvalidInput:
    others = [name for name in found if name not in match.fitting.values()]
    alike = {**match.fitting, **match.other_shape}
    which = f"{len(match.fitting) or 'None'} of the {len(needed)} tensors that the backbone needs"
    if not alike or (others and 10 * len(alike) < len(needed)):  # of another network, or under other names
        lacking = listed([name for name in needed if name not in match.fitting], shown=2)
        has = f"{path}, which has {listed(others, shown=2) or 'no dense floating-point tensors'}"
        return InvalidInput(f"{which} ({lacking}) is in {has}. Give the weights of this backbone.")
    bad = {
        "missing": [f"{name} {[*tensor.shape]}" for name, tensor in needed.items() if name not in alike],
        "of another shape": [
            f"{name} (needs {[*needed[name].shape]}, found {[*found[theirs].shape]})"
            for name, theirs in match.other_shape.items()
        ],
    }
    parts = " and ".join(f"{len(names)} {what} ({listed(names, shown=SHOWN)})" for what, names in bad.items() if names)
    return InvalidInput(f"{which} are in {path}, and all must be: {parts}. Give the weights of this backbone.")


def download(weights: Published, shown: Callable[[IO[bytes], int], AbstractContextManager[IO[bytes]]]) -> Path:
    """Download published weights unless they are here, and return their file; what was interrupted is resumed.

    ``shown`` wraps a file and its size in bytes to show how much of it is read, as :func:`rich.progress.wrap_file`.
    Raises :class:`Failure` if they cannot be downloaded, or have not the SHA-256 in the file's name, as of torch.hub.
    """
    from urllib.request import Request, urlopen

    import filelock

    path = weights_path(weights)
    if path.is_file():
        return path
    try:
        if weights.hub is not None:
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(weights.hub, ON_HUB))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.part")
        with filelock.FileLock(f"{part}.lock", timeout=0), part.open("ab+") as file:  # torch.hub does not resume
            start = max(file.tell() - 1, 0)  # the last byte again: no server sends the rest of a whole file
            asked = Request(weights.address, headers={"User-Agent": "holdout", "Range": f"bytes={start}-"})
            with urlopen(asked, timeout=60) as answer, shown(answer, size := answer.length) as content:
                file.truncate(start := start if answer.status == HTTPStatus.PARTIAL_CONTENT else 0)
                shutil.copyfileobj(content, file)
            if (done := file.seek(0, os.SEEK_END)) < start + size:
                raise ConnectionError(f"the connection ended after {done:,} of {start + size:,} bytes")
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            named = re.search(r"-([0-9a-f]{8,})\.", weights.file)
            if named and not digest.startswith(named[1]):
                part.unlink()
                raise ValueError(f"the SHA-256 begins with {digest[:8]}, not {named[1]}, so the file was removed")
            return part.replace(path)
    except Exception as error:  # the hub's library raises those of its own HTTP client
        reason = str(error).strip("<>.") or type(error).__name__
        raise Failure(
            f"{weights.address} was not downloaded: {reason}. The same command resumes it; or save it as {path}."
        ) from error
