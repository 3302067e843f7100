"""The answer of a search, in the lines that terminal, report, live page, MLflow and Python show alike."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from search.difference import Recommendation
from search.records.records import Records
from search.records.runs import campaign_of
from search.results.pairs import Pair, difference_with_interval, the_same
from search.results.rows import Result, parameters
from search.results.summary import Summary
from search.stages import BASELINES, Role, baseline_phrase
from trainables.common.errors import counted, listed
from trainables.models.backbones import on_features

if TYPE_CHECKING:
    from search.results.comparison import Comparison


class Answer(Result):
    """The answer of a search that has chosen, in lines that are the same in every output.

    Attributes:
        recommended: the recommended model with its hyperparameters, and what the recommendation rests on.
        better_than_default: whether its test value is above that of its loss's default, with the interval; empty for a
            network without training.
        better_than_untrained: the same for the better one of the networks without training, in the confirmation.
        not_different: the other losses that are not significantly different; empty if no losses are compared.
    """

    search: str
    recommended: str
    better_than_default: str
    better_than_untrained: str
    not_different: str = ""
    next: str

    @property
    def lines(self) -> tuple[str, ...]:
        compared = (self.better_than_default, self.better_than_untrained, self.not_different)
        return self.recommended, *filter(None, compared), self.next

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__


def answers(comparison: "Comparison", searches: Sequence[Records]) -> Iterator[Answer]:
    """Yield the answer of each search that has chosen."""
    for search, summary in zip(searches, comparison.searches, strict=True):
        if (model := summary.recommended) is None:
            continue
        tested = any(row.test for row in comparison.rows if row.search == summary.name)
        about = ("no pairs", *(f"{summary.name} {name} " for name in (model.loss, *BASELINES)))
        reasons = [f"({text})" for text in comparison.left_out if text.startswith(about)]
        unknown = " ".join(("not shown", *reasons[:1])) if tested else "not tested yet"
        pairs = [pair for pair in comparison.pairs if pair.first.search == summary.name]
        where = f"on the {counted(summary.split.test_classes, 'test class', 'test classes')} (corrected for "
        where += f"{counted(len(comparison.pairs), 'pair')})"
        of_vectors = on_features(str(search.settings.get("model.backbone")))
        names = {name: baseline_phrase(name, of_vectors=of_vectors) for name in BASELINES}
        rival = next((f" ({names[pair.second.loss]})" for pair in pairs if pair.second.role is Role.BASELINE), "")
        of_default = "it is the default" if model.number == 0 else _compared(model, pairs, Role.DEFAULT, where)
        yield Answer(
            search=summary.name,
            recommended=f"Recommended: {_recommended(summary, model, names)}.",
            # what is not trained has no default
            better_than_default="" if model.number is None else f"Better than its default: {of_default or unknown}.",
            better_than_untrained=f"Better than no training{rival if model.number is not None else ''}: "
            f"{_against_untrained(summary, model, pairs, where) or unknown}.",
            not_different=_not_different(model, pairs),
            next=f"Next: {_next(search, model, tested=tested, changed=bool(comparison.changed))}.",
        )


def _recommended(summary: Summary, model: Recommendation, names: Mapping[str, str]) -> str:
    if model.number is None:
        return f"{names[model.loss]} ({model.basis})"
    params = parameters(summary.losses[model.loss].tuned.params or {})
    if model.number:
        return f"{model.loss} with {params} (trial {model.number}, {model.basis})"
    return f"{model.loss} with its default {params} ({model.basis})" if params else f"{model.loss} ({model.basis})"


def _against_untrained(summary: Summary, model: Recommendation, pairs: Sequence[Pair], where: str) -> str:
    if not summary.untrained:
        return "not compared, because training began from random weights"
    if model.number is not None:
        return _compared(model, pairs, Role.BASELINE, where)
    against = [pair for pair in pairs if pair.second.role is Role.BASELINE]
    won = [pair for pair in against if pair.differ and pair.difference > 0]
    better = f"but {listed([f'{pair.first.loss} is, {difference_with_interval(pair)}' for pair in won])}"
    found = better if won else "and no loss is significantly better"
    return f"it is not trained, {found} by {against[0].metric} {where}" if against else ""


def _compared(model: Recommendation, pairs: Sequence[Pair], role: Role, where: str) -> str:
    """Return how the model compares with its default or no training; empty without a pair."""
    for pair in pairs:
        if pair.first.loss == model.loss and pair.second.role is role:
            verdict = ("yes" if pair.difference > 0 else "no") if pair.differ else "not shown"
            same = f", {the_same(pair)}" if pair.same else ""
            return f"{verdict}{same}, {difference_with_interval(pair)} by {pair.metric} {where}"
    return ""


def _not_different(model: Recommendation, pairs: Sequence[Pair]) -> str:
    """Return a sentence with the other losses that are not significantly different; empty without pairs of losses."""
    found: dict[str, bool] = {}
    for pair in pairs:
        names = [key.loss for key in (pair.first, pair.second) if key.role is not Role.DEFAULT]
        if len(names) == 2 and model.loss in names and {*names} - {*BASELINES, model.loss}:
            found[names[names[0] == model.loss]] = pair.differ
    alike = [name for name, differ in found.items() if not differ]
    return f"Not significantly different from it: {listed(alike, shown=8) or 'no other loss'}." if found else ""


def _next(search: Records, model: Recommendation, *, tested: bool, changed: bool) -> str:
    name = search.name
    if not tested and changed:
        return f"`holdout verify {name}` names what is missing"
    if not tested and (campaign := campaign_of(search.folder.runs, name)):
        return f"`holdout run` with the file of {campaign.name} opens the test classes"
    if not tested and not search.stays_sealed:
        return f"`holdout test {name}` opens the test classes"
    if search.content.get("trainable"):
        return f"`holdout compare {name}` shows every value"
    return f"`holdout export {name} --to FOLDER` writes this {model.loss} model"
