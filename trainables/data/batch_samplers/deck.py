"""Cards dealt in shuffled rounds: how samplers that draw classes draw them, and a class's images."""

from collections.abc import Mapping, Sequence

import torch


class Deck:
    """Cards dealt in shuffled rounds: all before any again, none twice in one hand."""

    def __init__(self, cards: Sequence[int], generator: torch.Generator) -> None:
        self._cards, self._generator = cards, generator
        self._waiting: list[int] = []

    def _shuffled(self) -> list[int]:
        return [self._cards[i] for i in torch.randperm(len(self._cards), generator=self._generator).tolist()]

    def hand(self, room: int, weights: Mapping[int, int] | None = None) -> list[int]:
        """The next cards that fit into ``room`` together, waiting ones first; without ``weights`` a card weighs 1.

        A card that does not fit, or that the hand already has, waits for the next hand.
        """
        hand: dict[int, None] = {}
        waiting = self._waiting
        for _ in range(2):  # what was left over, then a fresh round: now every card has had its chance
            left: list[int] = []
            for position, card in enumerate(waiting):
                if room == 0:
                    left += waiting[position:]
                    break
                weight = weights[card] if weights else 1
                if weight <= room and card not in hand:
                    hand[card] = None
                    room -= weight
                else:
                    left.append(card)
            self._waiting = left
            if room == 0:
                break
            waiting = left + self._shuffled()
        return list(hand)
