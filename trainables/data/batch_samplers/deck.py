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

    def hand(self, room: int, weights: Mapping[int, int] | None = None) -> dict[int, int]:
        """The next cards, and how much of each, that fill ``room``; without ``weights`` a card weighs 1.

        A card that does not fit, or that the hand already has, waits for the next hand. Where what is left of a round
        has none that fits, the first one of it that waits gives a part of its weight: a new round does not begin
        before every card of the old one was dealt.
        """
        waiting = self._waiting
        if weights is None and room <= len(waiting):  # most hands by far, and nobody has to look at each card
            self._waiting = waiting[room:]
            return dict.fromkeys(waiting[:room], 1)
        hand: dict[int, int] = {}
        for _ in range(2):  # what is left of the round, then a fresh one
            left: list[int] = []
            for position, card in enumerate(waiting):
                if room == 0:
                    left += waiting[position:]
                    break
                weight = weights[card] if weights else 1
                if weight <= room and card not in hand:
                    hand[card] = weight
                    room -= weight
                else:
                    left.append(card)
            too_large = next((card for card in left if card not in hand), None)
            if room and too_large is not None:
                left.remove(too_large)
                hand[too_large], room = room, 0
            self._waiting = left
            if room == 0:
                break
            waiting = left + self._shuffled()
        return hand
