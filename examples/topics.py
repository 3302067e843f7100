"""A classifier of texts: which topic is a message about, for authors that it has never read?

holdout run examples/topics.yaml

The split is by author, so training, validation and test have the same topics and different authors.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import holdout

TOPICS = {"garden": "seed soil rose hedge", "harbour": "sail tide rope crane", "kitchen": "salt oven flour knife"}


@dataclass(frozen=True, kw_only=True)
class Messages(holdout.ItemDataset):
    """Drawn messages: some words of the topic, and more of those that their author likes, of whatever topic."""

    summary: ClassVar[str] = "messages of authors about topics"

    authors: int = 24
    each: int = 6

    def classes(self) -> Mapping[str, tuple[str, ...]]:
        numbers = [f"{author:02d}/{number}" for author in range(self.authors) for number in range(self.each)]
        return {topic: tuple(f"{topic}/{number}" for number in numbers) for topic in TOPICS}

    def groups(self) -> Mapping[str, str]:
        return {key: f"author-{key.split('/')[1]}" for keys in self.classes().values() for key in keys}

    def identity(self) -> str:
        return f"messages {self.authors} {self.each}"

    def read(self, key: str) -> str:
        topic, author, _ = key.split("/")
        liked = random.Random(author).sample([word for words in TOPICS.values() for word in words.split()], 4)
        draw = random.Random(key)
        return " ".join([*draw.sample(TOPICS[topic].split(), 2), *draw.choices(liked, k=6)])


class TopicClassifier(holdout.EstimatorTrainable):
    """Logistic regression on the weighted counts of words or letters, scored by scikit-learn's scorers."""

    metrics = ("neg_log_loss", "accuracy", "f1_macro")
    space: ClassVar[Mapping[str, Any]] = {
        "C": holdout.Float(0.01, 100.0, log=True, default=1.0),
        "analyzer": holdout.Choice(("word", "char_wb"), default="word"),
    }

    def estimator(self, params: Mapping[str, Any], *, seed: int) -> Any:
        words = TfidfVectorizer(analyzer=params["analyzer"], ngram_range=(1, 2))
        return make_pipeline(words, LogisticRegression(C=params["C"], random_state=seed))
