"""A user-defined training on texts: which language's words are these?

holdout run examples/texts.yaml
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import holdout

BINS = 256
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True, kw_only=True)
class Languages(holdout.ItemDataset):
    """Invented languages with six syllables each; an item is a sentence of five words."""

    summary: ClassVar[str] = "sentences of invented languages"

    languages: int = 20
    sentences: int = 12

    def classes(self) -> Mapping[str, tuple[str, ...]]:
        return {
            f"language-{number:02d}": tuple(f"{number}/{sentence}" for sentence in range(self.sentences))
            for number in range(self.languages)
        }

    def identity(self) -> str:
        return f"languages {self.languages} {self.sentences}"

    def read(self, key: str) -> str:
        number, sentence = map(int, key.split("/"))
        own = torch.Generator().manual_seed(number)
        syllables = [SYLLABLES[row] for row in torch.randperm(len(SYLLABLES), generator=own)[:6]]
        drawn = torch.randint(len(syllables), (5, 2), generator=torch.Generator().manual_seed(1000 + sentence))
        return " ".join(syllables[first] + syllables[second] for first, second in drawn.tolist())


def counts(texts: Sequence[str]) -> Tensor:
    """Return the pairs of letters in each text, counted in bins [N, BINS]."""
    rows = [torch.tensor([(31 * ord(a) + ord(b)) % BINS for a, b in pairwise(text)]) for text in texts]
    return torch.stack([torch.bincount(row, minlength=BINS).float().sqrt() for row in rows])


class LanguageTraining(holdout.Trainable):
    """A linear map of letter pairs, trained to classify the training languages."""

    name = "languages"
    space: ClassVar[Mapping[str, Any]] = {
        "lr": holdout.Float(1e-3, 1e-1, log=True, default=1e-2),
        "temperature": holdout.Float(0.02, 0.5, log=True, default=0.1),
        "dimensions": holdout.Choice((8, 16, 32), default=16),
    }

    def setup(self, params: Mapping[str, Any], train: holdout.Items, *, seed: int, device: torch.device) -> None:
        self.inputs, self.labels = counts(train.items).to(device), torch.from_numpy(train.labels).to(device)
        self.network = nn.Linear(BINS, params["dimensions"]).to(device)
        self.proxies = nn.Parameter(torch.randn(len(train.class_names), params["dimensions"], device=device))
        self.optimizer = torch.optim.Adam([*self.network.parameters(), self.proxies], lr=params["lr"])
        self.temperature = params["temperature"]

    def train_epoch(self) -> Mapping[str, float]:
        losses = []
        for rows in torch.randperm(len(self.inputs)).split(32):
            embeddings = nn.functional.normalize(self.network(self.inputs[rows]))
            logits = embeddings @ nn.functional.normalize(self.proxies).T / self.temperature
            loss = nn.functional.cross_entropy(logits, self.labels[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return {"loss": sum(losses) / len(losses), "batches": len(losses)}

    def embed(self, items: Sequence[str]) -> Tensor:
        return self.network(counts(items).to(self.proxies.device))

    @classmethod
    def predictor(cls, folder: Path, params: Mapping[str, Any], *, device: torch.device) -> Callable[[Any], Tensor]:
        network = nn.Linear(BINS, params["dimensions"]).to(device)
        network.load_state_dict(torch.load(folder / "state.pt", weights_only=True, map_location=device)["network"])
        return lambda items: network(counts(items).to(device))

    def save(self, folder: Path) -> None:
        parts = {"network": self.network, "optimizer": self.optimizer}
        state = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**state, "proxies": self.proxies}, folder / "state.pt")

    def load(self, folder: Path) -> None:
        state = torch.load(folder / "state.pt", weights_only=True, map_location=self.proxies.device)
        self.network.load_state_dict(state["network"])
        self.proxies.data.copy_(state["proxies"])
        self.optimizer.load_state_dict(state["optimizer"])
