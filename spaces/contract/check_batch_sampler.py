"""What is asked of a batch sampler, built-in or one's own."""

from collections.abc import Iterator, Mapping

import torch

from spaces.contract.outcome import Check, CheckOutcome, outcomes_of
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.data.batch_samplers.base import Sampler
from trainables.mistakes import raise_if_any

Setting = tuple[list[int], int, int]

SETTINGS: tuple[Setting, ...] = (
    ([6] * 10, 20, 4),
    ([6] * 10, 20, 5),
    ([3, 9, 1, 5, 7, 2, 8, 4], 12, 3),
    ([8] * 4, 32, 8),
    ([40, 40], 10, 5),
)
"""Class sizes, batch size and images a class; those that the sampler's own rule forbids are left out."""


def check_batch_sampler(name: str) -> Iterator[CheckOutcome]:
    """Whether a batch sampler keeps the contract: a name or an import path."""
    return outcomes_of(lambda: _SamplerContract(name).checks())


class _SamplerContract:
    """The checks of one batch sampler."""

    def __init__(self, name: str) -> None:
        raise_if_any(BATCH_SAMPLERS.problems("The batch sampler", name))
        self._class = BATCH_SAMPLERS[name]

    def checks(self) -> Mapping[str, Check]:
        return {
            "It can fill some batches, and says which not.": self._settings_problem,
            "Its batches hold whole numbers of images, as many as asked for at most.": self._batches_problem,
            "An epoch has as many batches as its length says.": self._length_problem,
            "Its batches are a function of seed and epoch.": self._function_problem,
            "Seeds and epochs differ.": self._difference_problem,
        }

    def _settings(self) -> list[Setting]:
        return [setting for setting in SETTINGS if not self._class.problems(*setting)]

    def _sampler(self, setting: Setting, seed: int = 0) -> tuple[Sampler, int]:
        """The sampler of ``setting``, on labels in no order and with gaps, and the number of images."""
        sizes, batch_size, images_per_class = setting
        labels_N = torch.tensor([3 * label + 5 for label, size in enumerate(sizes) for _ in range(size)])
        labels_N = labels_N[torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(7))]
        sampler = self._class(labels_N, batch_size=batch_size, images_per_class=images_per_class, seed=seed)
        return sampler, len(labels_N)

    def _settings_problem(self) -> str:
        if not self._settings():
            return "Its rule (problems) forbids ordinary batches, such as 20 of 10 classes of 6 images."
        refused = self._class.problems([2, 2], 0, 1)
        return "" if refused else "Its rule (problems) has nothing against a batch of 0 images."

    def _batches_problem(self) -> str:
        for setting in self._settings():
            sampler, images = self._sampler(setting)
            for batch_B in sampler.batches(3):
                if not isinstance(batch_B, torch.Tensor) or batch_B.dtype != torch.int64 or batch_B.ndim != 1:
                    return f"A batch must be an int64 tensor of image numbers; it is {batch_B!r:.100}."
                if not 0 < len(batch_B) <= setting[1]:
                    return f"A batch has {len(batch_B)} images where at most {setting[1]} were asked for."
                if batch_B.min() < 0 or batch_B.max() >= images:
                    return f"A batch names image {batch_B.max()} of {images}, which are counted from 0."
        return ""

    def _length_problem(self) -> str:
        for setting in self._settings():
            sampler, _ = self._sampler(setting)
            if (count := len(list(sampler.batches(1)))) != len(sampler):
                return f"An epoch has {count} batches, and len() says {len(sampler)}."
        return ""

    def _function_problem(self) -> str:
        for setting in self._settings():
            epochs = []
            for noise in range(2):
                torch.manual_seed(noise)
                sampler, _ = self._sampler(setting)
                if noise:
                    list(sampler.batches(1))  # a resumed training has not seen the epochs before
                epochs.append(list(sampler.batches(2)))
            if len(epochs[0]) != len(epochs[1]) or not all(map(torch.equal, *epochs)):
                return "The same seed and epoch give other batches when asked again: draw with self.generator(epoch)."
        return ""

    def _difference_problem(self) -> str:
        for setting in self._settings()[:1]:
            drawn = {
                tuple(tuple(batch_B.tolist()) for batch_B in self._sampler(setting, seed)[0].batches(epoch))
                for seed in (0, 1)
                for epoch in (0, 1)
            }
            if len(drawn) < 4:
                return "Two seeds or two epochs have the same batches: draw with self.generator(epoch)."
        return ""
