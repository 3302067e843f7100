"""Doing the same for every search of a campaign, and telling the mistakes of all of them at once."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from trainables.mistakes import Mistakes, raise_if_any

Given = TypeVar("Given")
Made = TypeVar("Made")


def for_each(given: Mapping[str, Given], make: Callable[[Given], Made]) -> list[Made]:
    """``make`` of each of ``given``, which are named by the labels of their searches.

    Raises:
        Mistakes: those of all searches. What is wrong with every one of them is said once, else with the labels.
    """
    made: list[Made] = []
    at: dict[str, list[str]] = {}
    for labels, value in given.items():
        try:
            made.append(make(value))
        except Mistakes as mistakes:
            for sentence in mistakes.sentences:
                at.setdefault(sentence, []).append(labels)
    raise_if_any(
        [
            sentence if len(labels) == len(given) else f"{'; '.join(labels)}: {sentence}"
            for sentence, labels in at.items()
        ]
    )
    return made
