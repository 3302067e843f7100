"""The answer of a search: the four lines that terminal, report, live page, MLflow and Python show alike."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.difference import Recommendation
from search.plan.runs import RunFolder, stored_config
from search.report.formats import difference_with_interval, in_points, parameters, the_same
from search.report.results import Answer, Comparison, Pair, Summary
from search.stages import UNTRAINED, WHITENED, Role
from trainables.errors import counted, listed


def answers(comparison: Comparison, folders: Sequence[RunFolder]) -> Iterator[Answer]:
    """Yield the answer of each search in ``folders`` that has chosen."""
    for folder, summary in zip(folders, comparison.searches, strict=True):
        if (model := summary.recommended) is None:
            continue
        tested = any(row.test for row in comparison.rows if row.search == summary.name)
        unknown = (
            " ".join(("not shown", *(f"({text})" for text in comparison.left_out[:1]))) if tested else "not tested yet"
        )
        pairs = [pair for pair in comparison.pairs if pair.first.search == summary.name]
        where = f"on the {counted(summary.split.test_classes, 'test class', 'test classes')} (corrected for "
        where += f"{counted(len(comparison.pairs), 'pair')})"
        yield Answer(
            search=summary.name,
            recommended=f"Recommended: {_recommended(summary, model)}.",
            better_than_default=f"Better than its default: {_against_default(model, pairs, where) or unknown}.",
            better_than_untrained="Better than the untrained network: "
            f"{_against_untrained(summary, model, pairs, where) or unknown}.",
            next=f"Next: {_next(summary.name, model, stored_config(folder), tested=tested)}.",
        )


def _recommended(summary: Summary, model: Recommendation) -> str:
    if model.number is None:
        return f"the {model.loss} network ({model.basis})"
    params = parameters(summary.losses[model.loss].tuned.params or {})
    if model.number:
        return f"{model.loss} with {params} (trial {model.number}, {model.basis})"
    return f"{model.loss} with its default {params} ({model.basis})" if params else f"{model.loss} ({model.basis})"


def _against_default(model: Recommendation, pairs: Sequence[Pair], where: str) -> str:
    if not model.number:
        return "it is the default" if model.number == 0 else "a network without training has none"
    return _compared(model, pairs, Role.DEFAULT, where)


def _against_untrained(summary: Summary, model: Recommendation, pairs: Sequence[Pair], where: str) -> str:
    if not summary.untrained:
        return "nothing was pretrained"
    if model.number is not None:
        return _compared(model, pairs, Role.BASELINE, where)
    against = [pair for pair in pairs if pair.second.role is Role.BASELINE]
    if not against:
        return ""
    better = [f"{pair.first.loss} is, {difference_with_interval(pair)}" for pair in against if _is_better(pair)]
    metric, whitening = against[0].metric, ""
    tests = [(summary.baselines[name].test or {}).get(metric) for name in (WHITENED, UNTRAINED)]
    if model.loss == WHITENED and tests[0] and tests[1]:
        whitening = f"whitening {in_points(metric, tests[0].mean - tests[1].mean)} without an interval; "
    return f"{whitening}{listed(better) if better else 'no loss is'}, by {metric} {where}"


def _compared(model: Recommendation, pairs: Sequence[Pair], role: Role, where: str) -> str:
    """Return how the model compares with its default or the untrained network; empty without a pair."""
    for pair in pairs:
        if pair.first.loss == model.loss and pair.second.role is role:
            verdict = ("yes" if _is_better(pair) else "no") if pair.differ else "not shown"
            same = f", {the_same(pair)}" if pair.same else ""
            return f"{verdict}{same}, {difference_with_interval(pair)} by {pair.metric} {where}"
    return ""


def _is_better(pair: Pair) -> bool:
    return pair.differ and pair.difference > 0


def _next(name: str, model: Recommendation, config: Mapping[str, Any], *, tested: bool) -> str:
    if not tested and not (model.number is None and config.get("final", {}).get("test") == "if_better"):
        return f"`holdout test {name}` opens the test classes"
    if config.get("trainable"):
        return f"`holdout compare {name}` shows every value"
    what = f"the {model.loss} network" if model.number is None else f"this {model.loss} model"
    return f"`holdout export {name} --to FOLDER` writes {what}"
