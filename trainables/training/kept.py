"""A kept model as the test loads it, and the check that it is the one that was validated.

The model in memory and the one that was saved may differ: a part that is not saved, averaged weights, an adapter that
cannot be merged. So a checkpoint holds the embeddings of some items by the model in memory, and the loaded model has to
embed them alike: after the first epoch of a study, and again before the test classes are opened.

Shapes: N items of a view, P of them probed, D embedding dimensions.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.data.store.view import StoreView, blindly
from trainables.errors import counted
from trainables.files import in_digest_order
from trainables.models.backbones import is_own_network
from trainables.spec import TrialSpec

PROBED, ALONE = 16, 3
"""Items by whose embeddings a kept model is checked, and those of them that are embedded alone."""

RESTORED, BATCHED = 1e-4, 1e-2
"""Differences that rounding may cause, relative to the largest number in the embeddings: of one batch by two copies of
a model, and of an item among other items, which a network in 16 bits rounds otherwise."""

Embed = Callable[[StoreView], Tensor]
"""A function from a view to the embeddings [N, D] of its items."""


class KeptModel(NamedTuple):
    """A kept model, loaded as the test loads it.

    Attributes:
        view: the items that were asked for.
        embed: embeds the items of a view.
        probe_PD: the embeddings of the :func:`probed` items by the model in memory.
        tolerance: the largest relative difference of embeddings, where it is above that of rounding.
    """

    view: StoreView
    embed: Embed
    probe_PD: Tensor
    tolerance: float = 0.0

    def problem(self) -> str | None:
        """Return how its embeddings differ from those in memory, or within other batches; None if they do not."""
        items, expected_PD = probed(self.view), self.probe_PD
        found_PD = self.embed(items).cpu()
        if found_PD.shape[1:] != expected_PD.shape[1:]:
            sizes = f"{found_PD.shape[1]} numbers an item, and the one in memory {expected_PD.shape[1]}"
            return f"Loaded as the test loads it, the saved model returns {sizes}."
        size = expected_PD.abs().max().item()
        orders = [torch.arange(len(items)).flip(0), *torch.arange(min(ALONE, len(items))).split(1)]
        changes = [(self.embed(items.rows(rows)).cpu() - found_PD[rows]).abs().max().item() for rows in orders]
        if not max(changes) <= max(self.tolerance, BATCHED) * size:
            return (
                "An item's embedding depends on the items beside it, or differs each time: numbers of up to "
                f"{size:.4g} differ by {max(changes):.4g} between {counted(len(items), 'item')} together, in another "
                "order and alone. Compute each from its item alone, without dropout or statistics of the batch."
            )
        change = (found_PD - expected_PD).abs().max().item()
        if not change <= max(self.tolerance, RESTORED) * size:
            return (
                "Loaded as the test loads it, the saved model is not the one that was trained: numbers of up to "
                f"{size:.4g} in its embeddings differ by {change:.4g}. Save and load all that an embedding depends on."
            )
        return None


def probed(view: StoreView) -> StoreView:
    """Return the first :data:`PROBED` items of ``view`` in the order of their keys' digests."""
    return view.rows(torch.tensor(in_digest_order(view.image_keys)[:PROBED]))


def embedded(spec: TrialSpec, view: StoreView, embed: Embed) -> Tensor:
    """Embed the items of ``view``, [N, D]; if a user's code does it, in an order without their classes."""
    is_own = spec.trainable is not None or is_own_network(spec.model.backbone)
    return blindly(view, embed) if is_own else embed(view)
