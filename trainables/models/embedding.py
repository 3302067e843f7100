"""The embedding network: a backbone, its adapters, and a head that pools and projects.

Shapes: B batch, N images, H and W pixels, F features, D embedding.
"""

import copy
import fnmatch
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from trainables.common.errors import InvalidInput, counted, listed, raise_if_any
from trainables.common.forecast import Forecast
from trainables.common.process import contained
from trainables.data import Frame
from trainables.data.loading import Features, Images, load, prefetched
from trainables.metrics.gallery import full_float32
from trainables.models.backbones import Backbone, backbone, is_own_network
from trainables.models.config import ALL_BUT, HEAD_INIT, POOLING, STATISTICS, ModelConfig, pooling_problems
from trainables.models.weights import SHOWN, LoadedWeights, load_weights, weights_file


class EmbeddingModel(nn.Module):
    """Network from images [B, 3, H, W] in 0 … 1, or from features [B, F], to embeddings [B, D], not normalised.

    ``backbone``, ``pooling`` and ``head`` (optional layer norm, hidden layers, projection) hold all its parameters.
    ``loaded`` says where the initial weights are from, if they are from a file. Raises :class:`InvalidInput` if they
    are missing or belong to another network.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        path = weights_file(config)
        row = backbone(config.backbone)
        raise_if_any([each.below("model") for each in pooling_problems(config.pooling, config.backbone, row)])
        self.backbone = row.tokens() if row.tokens and POOLING.rows[config.pooling].tokens else row.build()
        self.loaded = None if path is None else load_weights(self.backbone, path)
        self.pooling = nn.Identity() if row.vectors else POOLING[config.pooling]()
        self.head = make_head(config, config.features)
        self.register_buffer("mean", torch.tensor(row.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(row.scale).view(3, 1, 1), persistent=False)
        self._bgr = row.bgr
        self.on_vectors = row.vectors
        norms = [module for module in self.backbone.modules() if isinstance(module, _BatchNorm)]
        for module in norms if config.freeze_bn else ():
            module.requires_grad_(config.freeze_bn == STATISTICS)
        self._frozen = [*(norms if config.freeze_bn else ()), *freeze(self.backbone, config)]
        if config.lora.rank is not None:
            self.adapters = add_lora(self.backbone, config.lora.rank, config.lora.alpha)
            self._frozen += without_learning(self.backbone)
        # convolutions are up to 1.4 times as fast on a CPU, and faster on a GPU too
        self.to(memory_format=torch.channels_last)
        self.train()

    def train(self, mode: bool = True) -> "EmbeddingModel":
        """Set the training mode; frozen modules and frozen batch normalisation stay in evaluation mode."""
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Embed images [B, 3, H, W] in 0 … 1 as [B, D]."""
        return self.head(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Return the pooled features [B, F] of images [B, 3, H, W] in 0 … 1."""
        if self.on_vectors:
            return images
        images = (images - self.mean) / self.scale
        return self.pooling(self.backbone(images.flip(1) if self._bgr else images))

    def head_parameters(self) -> list[nn.Parameter]:
        return [*self.pooling.parameters(), *self.head.parameters()]


def make_head(config: ModelConfig, features: int) -> nn.Sequential:
    """Build the layers from ``features`` F pooled features [B, F] to embeddings [B, D], with their initial weights."""
    layers: list[nn.Module] = []
    if config.layer_norm:
        layers.append(nn.LayerNorm(features, elementwise_affine=False))
    width = features
    if config.head == "mlp":
        for inputs, outputs in pairwise((features, *config.head_widths)):
            layers += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU(), nn.Dropout(config.head_dropout)]
            width = outputs
    if config.head != "none":
        projection = nn.Linear(width, features if config.embedding_dim is None else config.embedding_dim)
        HEAD_INIT[config.head_init](projection)
        layers.append(projection)
    return nn.Sequential(*layers)


# Initialisation of the last layer, from F to D. The length of an embedding has no effect on most losses, but a
# step of Adam has the same size for any weights, so it turns a layer of small ones further.


def kaiming_normal_head(layer: nn.Linear) -> None:
    """Draw the weights from N(0, 2/D), with zero biases, as in Proxy-Anchor's code (Kim et al., CVPR 2020)."""
    nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    nn.init.zeros_(layer.bias)


def linear_head(layer: nn.Linear) -> None:
    """Keep torch's default, weights and biases uniform in ±1/√F, as in PNP's code (Li et al., AAAI 2022)."""


def truncated_normal_head(layer: nn.Linear) -> None:
    """Draw the weights from N(0, 0.001²) within ±0.002, as in Sampling Wisely's code (Lu et al., ICCV 2019)."""
    nn.init.trunc_normal_(layer.weight, std=1e-3, a=-2e-3, b=2e-3)


# LoRA (Hu et al., ICLR 2022): a product of two thin matrices is learned and added to a frozen weight, not to the output
# of its layer: many networks read the weight of a layer that they do not call, or use it in two places.


class LowRank(nn.Module):
    """The sum of a weight W [out, ...] and ``scale`` B A, with A [rank, ...] and B [out, rank], zero at the start."""

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.lora_A = nn.Parameter(nn.init.kaiming_uniform_(weight.new_empty(rank, weight[0].numel()), a=5**0.5))
        self.lora_B = nn.Parameter(weight.new_zeros(len(weight), rank))

    def forward(self, weight: Tensor) -> Tensor:
        with torch.autocast(weight.device.type, enabled=False):  # the same sum as in the merged network
            return weight + (self.scale * self.lora_B @ self.lora_A).view_as(weight)


def add_lora(backbone: nn.Module, rank: int, alpha: float) -> dict[str, LowRank | str]:
    """Freeze ``backbone`` and adapt its layers in place; return the adapter of each weight, or why it has none."""
    backbone.requires_grad_(False)
    named = [part.named_parameters(recurse=False, remove_duplicate=False) for part in backbone.modules()]
    uses = Counter(parameter.data_ptr() for parameters in named for _, parameter in parameters)
    adapters: dict[str, LowRank | str] = {}
    for path, layer in [*backbone.named_modules()]:
        if not isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.MultiheadAttention):
            continue
        own = dict(layer.named_parameters(recurse=False))
        for name in [name for name in own if name.endswith("weight")] or ["weight"]:  # attention may have three
            weight, key = own.get(name), f"{path}.{name}".lstrip(".")
            if type(weight) is not nn.Parameter or not weight.is_floating_point():
                adapters[key] = "computed or quantised"
            elif getattr(layer, "groups", 1) > 1:
                adapters[key] = "grouped"
            elif uses[weight.data_ptr()] > 1:
                adapters[key] = "shared by layers"
            else:
                adapters[key] = adapter = LowRank(weight, rank, alpha / rank)
                parametrize.register_parametrization(layer, name, adapter)
    return adapters


def merged(network: nn.Module) -> nn.Module:
    """Return a copy of ``network`` whose weights include the adapters, also those of peft; itself if it has none."""
    if not any(isinstance(part, LowRank) or hasattr(part, "get_base_layer") for part in network.modules()):
        return network
    network = copy.deepcopy(network)
    layer: Any  # one of peft's
    for parent in [*network.modules()]:
        for name, layer in parent.named_children():
            if hasattr(layer, "get_base_layer"):
                layer.merge()
                setattr(parent, name, layer.get_base_layer())
        for name, parts in [*getattr(parent, "parametrizations", {}).items()]:
            if isinstance(parts[0], LowRank):
                kind = type(parent)  # it is the original's, too, and loses the property of that name
                parent.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))
                parametrize.remove_parametrizations(parent, name)
    return network


def freeze(backbone: nn.Module, config: ModelConfig) -> list[nn.Module]:
    """Freeze the parameters named in ``config.freeze``; return the modules of which nothing learns any more."""
    if not config.freeze:
        return []
    named = dict(backbone.named_parameters())
    if isinstance(config.freeze, str) and (all_but := ALL_BUT.fullmatch(config.freeze)):
        depths, count = depths_of(backbone)
        last = count - int(all_but[1])
        if last <= 0:
            found = f"{config.freeze}, and {config.backbone} has {counted(count, 'block')}"
            raise InvalidInput(f"model.freeze is {found}; name fewer, or give a list of parameter names, or null.")
        frozen = [name for name, depth in zip(named, depths, strict=True) if depth <= last]
    else:
        patterns = ["*"] if config.is_frozen else [*config.freeze]
        frozen = [name for name in named if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
        if unmatched := [pattern for pattern in patterns if named and not fnmatch.filter(named, pattern)]:
            found = f"{', '.join(map(repr, unmatched))}, which match{'es' * (len(unmatched) == 1)} no parameter"
            own = f"its parameters are named {', '.join([*named][:SHOWN])} …"
            raise InvalidInput(f"model.freeze has {found} of {config.backbone}; {own}")
    for name in frozen:
        named[name].requires_grad_(False)
    return without_learning(backbone)


def blocks_of(backbone: nn.Module) -> list[nn.Module]:
    """Return the blocks of a network in order, such as a ResNet's bottlenecks or a transformer's layers.

    They are recognised by their names, since networks of torchvision have lost their classes: the outermost modules
    whose names end with a number and that have named parts, with at most one other block in them.
    """
    modules = dict(backbone.named_modules())
    numbered = [
        name
        for name, module in modules.items()
        if name[-1:].isdigit() and any(not part.isdigit() for part, of in module.named_children() if [*of.parameters()])
    ]
    found: list[str] = []
    for name in numbered:
        inner = sum(other.startswith(f"{name}.") for other in numbered)  # one: of squeeze-and-excitation
        if inner <= 1 and not any(name.startswith(f"{outer}.") for outer in found):
            found.append(name)
    return [modules[name] for name in found]


def depths_of(backbone: nn.Module) -> tuple[list[int], int]:
    """Return the depth of each parameter, and the number of blocks.

    The depth is 0 before the first block, n in the n-th and before it, and one more behind the last.
    """
    blocks = blocks_of(backbone)
    of_block = {id(own): depth for depth, block in enumerate(blocks, 1) for own in block.parameters()}
    depths, last = [], 0
    for parameter in backbone.parameters():
        last = of_block.get(id(parameter), last)
        depths.append(last + (last > 0 and id(parameter) not in of_block))
    return depths, len(blocks)


def without_learning(backbone: nn.Module) -> list[nn.Module]:
    """Return the modules of ``backbone`` that have parameters, of which none learns."""
    learn_of = (
        (module, [parameter.requires_grad for parameter in module.parameters()]) for module in backbone.modules()
    )
    return [module for module, learn in learn_of if learn and not any(learn)]


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return an autocast context: bfloat16 for ``bfloat16``, or for ``auto`` on a GPU that has it; else float32."""
    bfloat16 = precision == "bfloat16"
    if precision == "auto" and device.type == "cuda":  # before Ampere (8.0) it is emulated, without convolutions
        bfloat16 = torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=bfloat16)


def emulates_bfloat16() -> bool:
    """Return True if PyTorch only emulates bfloat16 on this machine's CPU: a step of ResNet-18 takes 32 s, not 1."""
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


CUBLAS_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # lets cuBLAS add in a fixed order; read at its first product


@contextmanager
def deterministic(device: torch.device, enabled: bool) -> Iterator[None]:
    """On a GPU, use only algorithms that give the same bits every time, if ``enabled``; RuntimeError if one has none.

    A GPU otherwise adds some sums by atomic operations, in any order: gradients of gathered rows, of pooled maps and of
    some convolutions (https://docs.pytorch.org/docs/stable/notes/randomness.html).
    """
    if not (enabled and device.type == "cuda"):
        yield
        return
    os.environ.setdefault(*CUBLAS_WORKSPACE)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@torch.inference_mode()
def embed(
    network: nn.Module,
    images: Images | Features,
    frame: Frame,
    *,
    batch_size: int,
    device: torch.device,
    precision: str,
) -> Tensor:
    """Compute raw embeddings of all images, [N, D] float32 on ``device``, each resized and cropped at its centre.

    Validation, the test and inference all use this function. ``network`` is set to evaluation mode. ``batch_size`` may
    change the last bits. ``precision`` is ``float32`` (on a GPU without TF32), ``bfloat16``, or ``auto`` (see
    :func:`autocast`).
    """
    network.eval()
    chunks = []
    batches = torch.arange(len(images)).split(batch_size)

    def loaded(indices_B: Tensor) -> tuple[Tensor]:
        return (load(images, indices_B, "none", frame, device=device),)

    forecast = Forecast(f"Embedding {len(images):,} items", len(images))
    for (batch,) in prefetched(batches, loaded, device):
        with autocast(device, precision), full_float32():
            embeddings_BD = network(batch)
        chunks.append(embeddings_BD.float())
        forecast.add(len(embeddings_BD))
    return torch.cat(chunks)


@contextmanager
def _own_errors(name: str) -> Iterator[None]:
    """Raise what the code of a user's network raises as a sentence."""
    try:
        with contained():
            yield
    except InvalidInput:
        raise
    except Exception as error:
        if not is_own_network(name):
            raise
        raise InvalidInput(
            f"model.backbone: {name} must turn images into maps [B, features, h, w], and a new network must load its "
            f"state_dict of tensors; it raises {type(error).__name__}: {error}; fix its code."
        ) from error


def _refusal(model: nn.Module, row: Backbone, side: int) -> Exception | None:
    """Return the error of embedding one black image of ``side`` pixels, or one vector."""
    try:
        model(torch.zeros(1, row.features) if row.vectors else torch.zeros(1, 3, side, side))
    except (RuntimeError, AssertionError) as error:
        return error
    return None


@cache  # the searches of a campaign share their networks
def smoke_test(config: ModelConfig, image_size: int) -> LoadedWeights | None:
    """Build the network with its initial weights and embed one black image of ``image_size`` pixels.

    A search does this before it creates anything, since a network that does not work fails every trial: its weights
    are missing or do not fit, or it does not accept images of this size.
    """
    with torch.random.fork_rng(devices=[]), torch.inference_mode(), _own_errors(config.backbone):
        model, row = EmbeddingModel(config).eval(), backbone(config.backbone)
        if error := _refusal(model, row, image_size):
            larger = range(image_size + 1, row.crop.side + 1) if row.crop else ()
            side = next((side for side in larger if not _refusal(model, row, side)), None)
            fit = "set another size" if side is None else f"set it to {side}, the next larger size that it accepts"
            text = f"training.image_size is {image_size}, and {config.backbone} does not accept such images"
            raise InvalidInput(f"{text} ({error}); {fit}.") from error
        if is_own_network(config.backbone):  # a checkpoint is loaded into a new network
            new = EmbeddingModel(replace(config, weights=None))
            for tensor in new.state_dict().values():
                tensor.numel()  # raises for a state that is no tensor, and for a tensor without a size yet
            new.load_state_dict(model.state_dict())
            if depends_on_batch(model, torch.rand(3, 3, image_size, image_size)):
                why = "whose embedding of an image differs with its batch, or each time, in evaluation mode"
                fix = "compute it from the image alone, without dropout"
                raise InvalidInput(f"model.backbone is {config.backbone}, {why}; {fix}.")
    return model.loaded


def depends_on_batch(model: EmbeddingModel, images_B3HW: Tensor) -> bool:
    """Return True if the embeddings of ``images_B3HW`` differ in evaluation mode when each is embedded alone."""
    together_BD = model.eval()(images_B3HW)
    alone_BD = torch.cat([model(image_3HW[None]) for image_3HW in images_B3HW])
    return bool((together_BD - alone_BD).abs().max() > 1e-3 * together_BD.abs().max())


@cache
def learning_adapters(config: ModelConfig, image_size: int) -> str:
    """Return in words which adapters learn with images of ``image_size`` pixels; raise :class:`InvalidInput` if none.

    The network has to pass :func:`smoke_test`.
    """
    smoke_test(config, image_size)
    with torch.random.fork_rng(devices=[]), _own_errors(config.backbone):
        model = EmbeddingModel(replace(config, weights=None, head="linear", embedding_dim=1)).eval()
        model(torch.rand(1, 3, image_size, image_size)).sum().backward()
    reasons = {
        path: part if isinstance(part, str) else "no gradient" if part.lora_B.grad is None else ""
        for path, part in model.adapters.items()
    }
    blocks = {path: re.sub("[.][0-9]+(?=[.])", ".*", path) for path in reasons}
    learning = {blocks[path] for path, why in reasons.items() if not why}
    left_out = [f"{path if blocks[path] in learning else blocks[path]} ({why})" for path, why in reasons.items() if why]
    text = (
        f"adapters at {len(reasons) - len(left_out):,} of {counted(len(reasons), 'weight')} of linear, attention and "
    )
    text += f"convolutional layers{'; not at ' * bool(left_out)}{listed([*dict.fromkeys(left_out)])}"
    if len(left_out) == len(reasons):
        raise InvalidInput(f"LoRA: {text}: nothing of {config.backbone} would learn; set model.lora.rank to null.")
    if config.weights is None and not is_own_network(config.backbone):
        text += ", beside random weights that do not learn; give model.weights"
    return text
