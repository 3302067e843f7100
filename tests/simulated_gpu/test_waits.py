"""What makes the host wait for the GPU: nothing in a training step."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from support.simulated_gpu import SEEN
from support.simulated_gpu.streams import WAITS
from support.simulated_training import GPU, spec_of

from spaces.losses import SPACES
from trainables.data.store.spec import StoreSpec
from trainables.losses import LOSSES
from trainables.losses.mining import most_pairs
from trainables.training.train import Training

pytestmark = pytest.mark.simulated_gpu

VALIDATION = "trainables/metrics/"
CHOICES = [
    (loss, {name: choice})
    for loss, space in SPACES.items()
    for name, parameter in space.items()
    for choice in getattr(parameter, "choices", ())
]


def waits(before: Counter[Any]) -> Counter[str]:
    """Return what made the host wait since ``before``, by line."""
    return Counter({f"{name} at {line}": n for (kind, name, line), n in (SEEN - before).items() if kind in WAITS})


@pytest.mark.parametrize(("loss", "options"), [*((loss, {}) for loss in LOSSES), *CHOICES])
def test_no_loss_makes_the_host_wait(loss: str, options: dict[str, Any]) -> None:
    labels_B = torch.tensor([0, 1, 2, 2, 2, 2, 3, 3, 4])
    made = LOSSES[loss](num_classes=5, embedding_dim=8, **options).to(GPU)
    made.most_pairs = most_pairs([labels_B])
    embeddings_BD, labels_B = torch.randn(9, 8, device=GPU, requires_grad=True), labels_B.to(GPU)
    before = SEEN.copy()
    made(embeddings_BD, labels_B).backward()
    assert not waits(before)


@pytest.mark.parametrize("loss", ["margin", "proxy_anchor"])
def test_a_step_more_is_not_a_wait_more(images: StoreSpec, tmp_path: Path, loss: str) -> None:
    """The thread that prefetches may wait beside."""
    found = []
    for batch in (12, 6):
        training = Training(spec_of(images, tmp_path / str(batch), loss=loss, training={"batch_size": batch}), GPU)
        before = SEEN.copy()
        record = training.run_epoch()
        of_steps = {line: n for line, n in waits(before).items() if VALIDATION not in line}
        found.append((record["batches"], of_steps))
    (few, of_few), (many, of_many) = found
    assert many > few
    assert of_many == of_few
