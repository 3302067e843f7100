"""What is asked of a metric, built-in or one's own.

Shapes: N images, D embedding.
"""

import math
from collections.abc import Iterator, Mapping

import torch

from spaces.contract.outcome import Check, CheckOutcome, outcomes_of
from trainables.metrics.evaluation import evaluate
from trainables.metrics.own_metric import own_metric
from trainables.metrics.table import CLUSTERING, METRICS, SUPERCLASSES, metric_name, unknown_metrics
from trainables.mistakes import Mistakes, suggestion
from trainables.parts import is_own


def check_metric(name: str) -> Iterator[CheckOutcome]:
    """Whether a metric keeps the contract: a name such as ``recall_at_1``, or an import path."""
    return outcomes_of(lambda: _MetricContract(name).checks())


class _MetricContract:
    """The checks of one metric."""

    def __init__(self, name: str) -> None:
        if unknown_metrics([name]):
            raise Mistakes(f"The metric {name!r} is not known{suggestion(name, METRICS)}.")
        if is_own(name):
            own_metric(name)
        self._name = name
        generator = torch.Generator().manual_seed(0)
        self._labels_N = torch.arange(60) % 12
        centres_CD = torch.randn(12, 16, generator=generator)
        self._embeddings_ND = centres_CD[self._labels_N] + 0.7 * torch.randn(60, 16, generator=generator)

    def checks(self) -> Mapping[str, Check]:
        return {
            "It is a finite number.": self._number_problem,
            "It is the same each time.": self._again_problem,
            "The order of images means nothing.": self._order_problem,
            "It leaves embeddings and labels as they are.": self._untouched_problem,
        }

    def _value(self, order_N: torch.Tensor) -> float:
        labels_N = self._labels_N[order_N]
        values = evaluate(self._embeddings_ND[order_N], labels_N, [self._name], superclasses_N=labels_N // 3)
        return values[metric_name(self._name)]

    def _number_problem(self) -> str:
        value = self._value(torch.arange(60))
        return "" if math.isfinite(value) else f"Of 60 images of 12 classes it is {value}."

    def _again_problem(self) -> str:
        first, second = (self._value(torch.arange(60)) for _ in range(2))
        return "" if first == second else f"It is {first}, and then {second} of the same embeddings."

    def _order_problem(self) -> str:
        if self._name in CLUSTERING or self._name in SUPERCLASSES:
            return ""  # k-means begins from a seeded choice of rows, and another order is another choice
        first, second = self._value(torch.arange(60)), self._value(torch.randperm(60))
        close = math.isclose(first, second, rel_tol=1e-5, abs_tol=1e-6)
        return "" if close else f"It is {first}, and {second} when the images come in another order."

    def _untouched_problem(self) -> str:
        before = self._embeddings_ND.clone(), self._labels_N.clone()
        evaluate(self._embeddings_ND, self._labels_N, [self._name], superclasses_N=self._labels_N // 3)
        same = all(map(torch.equal, before, (self._embeddings_ND, self._labels_N)))
        return "" if same else "It changes the embeddings or labels that it is given: work on a copy."
