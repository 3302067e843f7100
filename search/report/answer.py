"""The answer of a search: the four lines that terminal, report, live page, MLflow and Python show alike."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.plan.runs import RunFolder, stored_config
from search.report.formats import difference_with_interval, in_points, parameters, the_same
from search.report.results import Answer, Comparison, Pair, Summary
from search.stages import UNTRAINED, WHITENED, Role
from trainables.errors import counted, listed


def answers(comparison: Comparison, folders: Sequence[RunFolder]) -> Iterator[Answer]:
    """Yield the answer of each search in ``folders`` that has chosen."""
    for folder, summary in zip(folders, comparison.searches, strict=True):
        if summary.recommended:
            pairs = [pair for pair in comparison.pairs if pair.first.search == summary.name]
            tested = any(row.test for row in comparison.rows if row.search == summary.name)
            unknown = f"not shown ({comparison.left_out[0]})" if comparison.left_out else "not shown"
            own = _Own(summary, pairs, len(comparison.pairs), unknown if tested else "not tested yet")
            yield Answer(
                search=summary.name,
                recommended=f"Recommended: {own.recommended()}.",
                better_than_default=f"Better than its default: {own.against_default()}.",
                better_than_untrained=f"Better than the untrained network: {own.against_untrained()}.",
                next=f"Next: {_next(own, stored_config(folder), tested=tested)}.",
            )


class _Own:
    """The recommendation of a search, and the pairs of its rows among all ``corrected`` ones of a table.

    ``unknown`` is the answer without a pair.
    """

    def __init__(self, summary: Summary, pairs: Sequence[Pair], corrected: int, unknown: str) -> None:
        assert summary.recommended is not None
        self.model = summary.recommended
        self.name = summary.name
        self._summary = summary
        self._pairs = pairs
        self._unknown = unknown
        self._classes = f"the {counted(summary.split.test_classes, 'test class', 'test classes')}"
        self._corrected = f"corrected for {counted(corrected, 'pair')}"

    def recommended(self) -> str:
        """Return the model with its hyperparameters, and the basis of the recommendation."""
        loss, number, basis = self.model.loss, self.model.number, self.model.basis
        if number is None:
            return f"the {loss} network ({basis})"
        params = parameters(self._summary.losses[loss].tuned.params or {})
        if number:
            return f"{loss} with {params} (trial {number}, {basis})"
        return f"{loss} with its default {params} ({basis})" if params else f"{loss} ({basis})"

    def against_default(self) -> str:
        """Return whether the recommended model is better than its loss's default."""
        if self.model.number is None:
            return "a network without training has none"
        if not self.model.number:
            return "it is the default"
        return self._compared(Role.DEFAULT)

    def against_untrained(self) -> str:
        """Return whether the recommended model is better than the untrained network."""
        if not self._summary.untrained:
            return "nothing was pretrained"
        if self.model.number is not None:
            return self._compared(Role.BASELINE)
        against = [pair for pair in self._pairs if pair.second.role is Role.BASELINE]
        if not against:
            return self._unknown
        better = [f"{pair.first.loss} is, {difference_with_interval(pair)}" for pair in against if is_better(pair)]
        return (
            f"{self._whitening(against[0].metric)}{listed(better) if better else 'no loss is'}, {self._on(against[0])}"
        )

    def _whitening(self, metric: str) -> str:
        """Return the difference of the two networks without training, which has no interval, if it is about that."""
        means = [(self._summary.baselines[name].test or {}).get(metric) for name in (self.model.loss, UNTRAINED)]
        if self.model.loss != WHITENED or not all(means):
            return ""
        whitened, untrained = (entry.mean for entry in means if entry)
        return f"whitening {in_points(metric, whitened - untrained)} without an interval; "

    def _compared(self, role: Role) -> str:
        own = [pair for pair in self._pairs if pair.first.loss == self.model.loss and pair.second.role is role]
        if not own:
            return self._unknown
        answer = ("yes" if own[0].difference > 0 else "no") if own[0].differ else "not shown"
        same = f", {the_same(own[0])}" if own[0].same else ""
        return f"{answer}{same}, {difference_with_interval(own[0])} {self._on(own[0])}"

    def _on(self, pair: Pair) -> str:
        return f"by {pair.metric} on {self._classes} ({self._corrected})"


def is_better(pair: Pair) -> bool:
    """Return True if the first row of a pair is significantly better."""
    return pair.differ and pair.difference > 0


def _next(own: _Own, config: Mapping[str, Any], *, tested: bool) -> str:
    if not tested and not (own.model.number is None and config.get("final", {}).get("test") == "if_better"):
        return f"`holdout test {own.name}` opens the test classes"
    if config.get("trainable"):
        return f"`holdout compare {own.name}` shows every value"
    model = f"the {own.model.loss} network" if own.model.number is None else f"this {own.model.loss} model"
    return f"`holdout export {own.name} --to FOLDER` writes {model}"
