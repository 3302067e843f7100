"""Parts as a user might write them, most of them broken in one way."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from spaces.space import Choice, Float, Space
from trainables.data import Dataset
from trainables.data.batch_samplers import BatchSampler
from trainables.losses.loss import Loss, ProxyLoss, Used
from trainables.models.backbones import Backbone


class Pull(Loss):
    name = "pull"
    space: ClassVar[Space] = {
        "power": Float(0.5, 2, default=1.0, source="chosen"),
        "kind": Choice(("mean", "sum"), default="mean", source="chosen"),
    }

    def __init__(self, *, num_classes: int, embedding_dim: int, power: float = 1.0, kind: str = "mean") -> None:
        if power <= 0:
            raise ValueError(f"power must be positive, not {power}: give a larger one.")
        super().__init__()
        self.power, self.kind = power, kind

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        unit_BD = embeddings_BD / (embeddings_BD.square().sum(1, keepdim=True) + 1e-6).sqrt()
        distances_BB = (2.001 - 2 * unit_BD @ unit_BD.T).clamp(min=1e-4) ** self.power
        return (distances_BB * (labels_B[:, None] == labels_B)).mean()


class WithoutSpace(Pull):
    space = None  # type: ignore[assignment]


class Filled(Pull):
    """A loss that sums the filler of a mask for anchors without a positive."""

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        same_BB = (labels_B[:, None] == labels_B).fill_diagonal_(False)
        return torch.where(same_BB, torch.cdist(embeddings_BD, embeddings_BD), 1e9).amin(dim=1).mean()


class Ordered(Pull):
    """A loss that counts the first sample twice, is nothing for one class, and has no gradient of its lengths."""

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        if len(labels_B.unique()) == 1:
            return torch.zeros(())
        return super().compute(embeddings_BD, labels_B) + embeddings_BD[0].square().sum() * embeddings_BD[0].detach()[0]


class Raising(Pull):
    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        raise IndexError("out of sorts")


class Exits(Pull):
    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        sys.exit()


class ShortRange(Pull):
    """A loss whose space goes beyond its domain and names an argument that it does not have."""

    space: ClassVar[Space] = {
        "power": Float(-1, 2, default=1.0, source="chosen"),
        "bend": Float(0, 1, default=0.0, source="chosen"),
    }


class Counting(Pull):
    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        self.used = Used("samples", len(labels_B))
        return super().compute(embeddings_BD, labels_B)


class CountingWrong(Pull):
    """A loss whose count has a gradient."""

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        value = super().compute(embeddings_BD, labels_B)
        self.used = Used("pairs", value)
        return value


class Proxies(ProxyLoss):
    space: ClassVar[Space] = {}

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        return -self.similarities(embeddings_BD).gather(1, labels_B[:, None]).mean()


@dataclass(frozen=True, kw_only=True)
class Greys(Dataset):
    """Images of one grey; ``wrong`` makes them floats."""

    shades: int = 8
    wrong: bool = False

    def classes(self) -> dict[str, tuple[str, ...]]:
        return {f"grey-{shade}": tuple(f"{shade}/{copy}" for copy in range(6)) for shade in range(self.shades)}

    def identity(self) -> str:
        return f"greys {self.shades}"

    def stamp(self, key: str) -> str:
        return key

    def read(self, key: str) -> np.ndarray:
        shade, _, copy = key.partition("/")
        pixels = np.full((20, 24, 3), 25 * int(shade) + 2 * int(copy), dtype=np.uint8)
        return pixels / 255 if self.wrong else pixels


@dataclass(frozen=True, kw_only=True)
class Grouped(Greys):
    """Greys of two kinds, dark and light; a half of the light ones, which test, is scored by itself."""

    def published_split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        names, middle = tuple(self.classes()), self.shades // 2
        return names[:middle], names[middle:]

    def superclasses(self) -> dict[str, str]:
        dark, light = self.published_split()
        return {**dict.fromkeys(dark, "dark"), **dict.fromkeys(light, "light")}

    def test_subsets(self) -> dict[str, tuple[str, ...]]:
        return {"few": self.published_split()[1][:2]}


class Misgrouped(Grouped):
    """Superclasses of the dark classes alone, a test subset of them, which train, and a part that is none."""

    def superclasses(self) -> dict[str, str]:
        return dict.fromkeys(self.published_split()[0], "dark")

    def test_subsets(self) -> dict[str, tuple[str, ...]]:
        return {"few": self.published_split()[0]}

    def parts(self) -> dict[str, str]:
        return {keys[0]: "probe" for keys in self.classes().values()}


class Tiny(nn.Module):
    features = 6

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, self.features, 8, stride=8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps: torch.Tensor = self.patches(images).relu()
        return maps


TINY = Backbone(summary="patches", build=Tiny, features=6, mean=(0.5, 0.5, 0.5), scale=(0.5, 0.5, 0.5))


class Blank(Tiny):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images * 0)


class Misfit(Tiny):
    features = 7

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 5, 8, stride=8)


class InOrder(BatchSampler):
    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        yield from torch.arange(sum(self.sizes))[: len(self) * self.batch_size].split(self.batch_size)


class Shuffled(BatchSampler):
    @staticmethod
    def problems(class_sizes: Sequence[int], batch_size: int, images_per_class: int) -> list[str]:
        enough = 2 <= batch_size <= sum(class_sizes)
        return [] if enough else [f"A batch of {batch_size} cannot be filled: give from 2 to {sum(class_sizes)}."]

    def batches(self, epoch: int) -> Iterator[torch.Tensor]:
        order_N = torch.randperm(sum(self.sizes), generator=self.generator(epoch))
        yield from order_N[: len(self) * self.batch_size].split(self.batch_size)


def spread(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> float:
    return embeddings_ND.var(0).mean().item()


def first_row(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> float:
    return embeddings_ND[0].norm().item()


def map_at_r(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> float:
    return 0.0
