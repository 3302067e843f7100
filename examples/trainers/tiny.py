"""Small data sets and models that the examples make instead of reading data and published weights."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import holdout
from examples.texts import SYLLABLES, Languages

LETTERS = "abcdefghijklmnopqrstuvwxyz"
HERE = Path(tempfile.gettempdir()) / "holdout-tiny"
"""A folder that outlives a training, as that of downloaded weights does."""


def sentences() -> tuple[list[str], np.ndarray]:
    """Return sentences of eight invented languages, and their labels."""
    return of_all(Languages(languages=8))


def signs() -> tuple[list[Any], np.ndarray]:
    """Return pictures and words of eight signs, and their labels."""
    return of_all(Signs(signs=8))


def vectors() -> tuple[np.ndarray, np.ndarray]:
    """Return vectors [64, 16] of eight classes, and their labels."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 8)
    return (generator.normal(size=(8, 16))[labels] + generator.normal(size=(64, 16))).astype(np.float32), labels


def pictures() -> tuple[list[np.ndarray], np.ndarray]:
    """Return the pictures of eight signs, and their labels."""
    return of_all(Pictures(signs=8))


def of_all(dataset: holdout.ItemDataset) -> tuple[list[Any], np.ndarray]:
    """Return all items of a data set, and their labels."""
    keys = [(key, label) for label, of_class in enumerate(dataset.classes().values()) for key in of_class]
    return [dataset.read(key) for key, _ in keys], np.array([label for _, label in keys])


@dataclass(frozen=True, kw_only=True)
class Signs(holdout.ItemDataset):
    """Signs of four coloured squares: six noisy pictures of each, and six texts with the word for it."""

    summary: ClassVar[str] = "pictures and words of signs"

    signs: int = 16

    def classes(self) -> Mapping[str, tuple[str, ...]]:
        return {f"sign-{number:02d}": tuple(f"{number}/{row}" for row in range(12)) for number in range(self.signs)}

    def identity(self) -> str:
        return f"signs {self.signs}"

    def read(self, key: str) -> Any:
        number, row = map(int, key.split("/"))
        generator = np.random.default_rng(number)
        colours, word = generator.integers(0, 256, (2, 2, 3)), "".join(generator.choice(SYLLABLES, 3))
        if row % 2:
            return f"{SYLLABLES[row]} {word} {SYLLABLES[-row]}"
        noise = np.random.default_rng((number, row)).normal(scale=20, size=(32, 32, 3))
        return (colours.repeat(16, 0).repeat(16, 1) + noise).clip(0, 255).astype(np.uint8)


class Pictures(Signs):
    """The pictures alone."""

    def classes(self) -> Mapping[str, tuple[str, ...]]:
        return {name: keys[::2] for name, keys in super().classes().items()}

    def identity(self) -> str:
        return f"pictures of signs {self.signs}"


def pairs(items: Sequence[Any], labels: np.ndarray) -> Any:
    """Return a data set of pairs of one class, each item with two others; a picture comes before a text."""
    from datasets import Dataset
    from PIL import Image

    shown = [item if isinstance(item, str) else Image.fromarray(item) for item in items]
    drawn = []
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        drawn += [(a, b) for a, b in combinations(rows, 2) if (b - a) in (1, 3)]
    anchors, positives = zip(*(sorted((shown[a], shown[b]), key=lambda item: isinstance(item, str)) for a, b in drawn))
    return Dataset.from_dict({"anchor": list(anchors), "positive": list(positives)})


def images(pictures: Sequence[np.ndarray]) -> Tensor:
    """Return pictures uint8 [H, W, 3] as a batch float32 [B, 3, H, W] in -1 … 1."""
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2) / 127.5 - 1


def network() -> nn.Module:
    """Return a network from vectors [B, 16] to embeddings [B, 8]."""
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


def bert() -> str:
    """Return the folder of a sentence-transformer: a BERT of one layer on single letters, with random weights."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    def write(folder: Path) -> None:
        numbers = {letter: number for number, letter in enumerate(("[UNK]", "[PAD]", *LETTERS))}
        letters = Tokenizer(models.WordLevel(numbers, "[UNK]"))
        letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        config = BertConfig(
            vocab_size=len(numbers), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        )
        BertModel(config).save_pretrained(folder / "bert")
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, unk_token="[UNK]", pad_token="[PAD]")
        tokenizer.save_pretrained(folder / "bert")
        transformer = Transformer(str(folder / "bert"), max_seq_length=64)
        SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu").save_pretrained(str(folder))

    return _written("bert", write)


def clip() -> str:
    """Return the folder of a sentence-transformer for texts and images: a CLIP of one layer, with random weights."""
    from sentence_transformers import SentenceTransformer
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizer

    def write(folder: Path) -> None:
        known = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), "<|startoftext|>", "<|endoftext|>"]
        tokenizer = CLIPTokenizer(vocab={entry: number for number, entry in enumerate(known)}, merges=[])
        size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
        ends = {"bos_token_id": len(known) - 2, "eos_token_id": len(known) - 1, "pad_token_id": len(known) - 1}
        config = CLIPConfig(
            text_config={**size, **ends, "vocab_size": len(known), "max_position_embeddings": 64},
            vision_config={**size, "image_size": 32, "patch_size": 16},
            projection_dim=16,
        )
        CLIPModel(config).save_pretrained(folder / "clip")
        frame = {"height": 32, "width": 32}
        processor = CLIPProcessor(CLIPImageProcessor(size=frame, crop_size=frame), tokenizer)
        processor.save_pretrained(folder / "clip")
        SentenceTransformer(str(folder / "clip"), device="cpu").save_pretrained(str(folder))

    return _written("clip", write)


def _written(name: str, write: Any) -> str:
    """Return the folder ``name``, after writing it whole if it is missing; its random weights are always the same."""
    if not (HERE / name).exists():
        HERE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HERE) as place, torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            write(Path(place) / name)
            if not (HERE / name).exists():
                (Path(place) / name).rename(HERE / name)
    return str(HERE / name)
