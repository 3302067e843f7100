"""The answer of a report, on hand-written records of searches."""

import re
from collections.abc import Sequence
from pathlib import Path

from support.made_search import Means, made_search

from search.plan.runs import RunFolder
from search.report.comparison import compare
from search.report.drawing import Drawing, Section
from search.report.results import stored_summary
from search.report.sections.answer import answer
from search.report.sections.outcome import pair_matrix


def sentences(runs: Path, means: Means) -> Sequence[str]:
    made_search(runs, "one", means)
    folder = RunFolder(runs, "one")
    return told(answer(compare([folder], [stored_summary(folder)]), [folder]))


def told(section: Section) -> Sequence[str]:
    """Return the sentences of the answer, at most three of which are above the picture."""
    (recommended,) = section.lead
    assert recommended.startswith("Recommended: ")
    assert 1 <= len(section.sentences) <= 3
    return (*section.sentences, *section.remarks)


def test_the_best_loss_comes_first_with_those_not_significantly_different(tmp_path: Path) -> None:
    means = {"mpa": (0.5, 0.6), "pnp": (0.3, 0.35), "margin": (0.6, 0.6), "triplet": (0.3, 0.35)}
    first, rest, corrected, *of_losses = sentences(tmp_path, means)
    assert first.startswith(("Of 4 tuned losses, mpa has", "Of 4 tuned losses, margin has"))
    assert "has the highest mean map_at_r on the test classes, 0.5" in first
    assert first.endswith(("; margin is not significantly different.", "; mpa is not significantly different."))
    assert rest == "Losses that are not compared below do not differ significantly."
    assert "corrected for all 10 pairs" in corrected
    by_loss = {sentence.partition(":")[0]: sentence for sentence in of_losses}
    assert by_loss["mpa"].startswith("mpa: tuned beats its default (map_at_r +")
    assert by_loss["mpa"].endswith("; beats pnp and triplet.")
    assert by_loss["margin"].startswith("margin: tuned is not significantly different from its default (")
    assert by_loss["pnp"].endswith("; is worse than mpa and margin.")


def test_a_loss_that_beats_every_other_is_named(tmp_path: Path) -> None:
    first, _, second, *_ = sentences(tmp_path, {"mpa": (0.5, 0.7), "pnp": (0.3, 0.35)})
    assert first.startswith("Of 2 tuned losses, mpa has the highest mean map_at_r on the test classes, 0.6")
    assert first.endswith(", and beats every other.")
    assert second.startswith("mpa: ")


def test_a_single_pair_is_corrected_for_no_others(tmp_path: Path) -> None:
    """Such as the pair of two losses that both keep the default."""
    made_search(tmp_path, "one", {"mpa": (0.5, 0.6), "pnp": (0.3, 0.35)})
    folder = RunFolder(tmp_path, "one")
    comparison = compare([folder], [stored_summary(folder)])
    losses = tuple(pair for pair in comparison.pairs if pair.first.loss != pair.second.loss)
    alone = comparison.model_copy(update={"pairs": losses})
    assert len(losses) == 1
    assert not any("corrected" in sentence for sentence in told(answer(alone, [folder])))
    assert any("corrected" in sentence for sentence in told(answer(comparison, [folder])))


def test_one_loss_is_compared_with_its_default_alone(tmp_path: Path) -> None:
    first, *_ = sentences(tmp_path, {"mpa": (0.5, 0.7)})
    assert first.startswith("mpa: tuned beats its default (")


def test_the_pairs_are_drawn_in_the_order_of_the_losses(tmp_path: Path) -> None:
    """Including a loss whose default is the best, which has no pair with its default."""
    losses = ["mpa", "margin", "pnp", "triplet"]
    made_search(tmp_path, "one", {loss: (0.3, 0.3 + number / 50) for number, loss in enumerate(losses)})
    folder = RunFolder(tmp_path, "one")
    comparison = compare([folder], [stored_summary(folder)])
    pairs = tuple(pair for pair in comparison.pairs if not pair.first.loss == pair.second.loss == "mpa")
    figure = pair_matrix(comparison.model_copy(update={"pairs": pairs[::-1]}))
    assert figure is not None
    assert isinstance(figure.picture, Drawing)
    names = [text for text in re.findall(r">([^<>]+)</text>", figure.picture.svg) if text in losses]
    assert names == [*losses, *losses], "columns, then rows"


def test_no_row_of_the_matrix_is_empty_and_a_pair_of_losses_is_in_both(tmp_path: Path) -> None:
    losses = ["mpa", "margin", "pnp"]
    made_search(tmp_path, "one", {loss: (0.3, 0.3 + number / 10) for number, loss in enumerate(losses)})
    folder = RunFolder(tmp_path, "one")
    comparison = compare([folder], [stored_summary(folder)])
    pairs = tuple(pair for pair in comparison.pairs if pair.first.loss != pair.second.loss)
    figure = pair_matrix(comparison.model_copy(update={"pairs": pairs}))
    assert figure is not None
    assert isinstance(figure.picture, Drawing)
    shown = re.findall(r'data-loss="([^"]+)"[^<]*(?:<!--[^>]*-->)?\s*<text[^>]*>([+-][^<]+)</text>', figure.picture.svg)
    by_pair = {tuple(marked.split(" ")): text for marked, text in shown}
    assert set(by_pair) == {(row, column) for row in losses for column in losses if row != column}
    for pair in pairs:
        first, second = pair.first.loss, pair.second.loss
        sign = "≈" if not pair.differ else "↑" if pair.difference > 0 else "↓"
        opposite = {"↑": "↓", "↓": "↑", "≈": "≈"}[sign]
        assert by_pair[first, second] == f"{100 * pair.difference:+.1f} {sign}"
        assert by_pair[second, first] == f"{-100 * pair.difference:+.1f} {opposite}"
