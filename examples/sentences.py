"""A user-defined training with sentence-transformers: a tiny model of the invented languages of examples/texts.py.

holdout run examples/sentences.yaml
"""

import tempfile
from collections.abc import Mapping
from typing import Any, ClassVar

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import BatchAllTripletLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

import holdout

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class SentenceTraining(holdout.SentenceTransformerTrainable):
    """A BERT of one layer on single letters. For a published model: ``SentenceTransformer("its name")``."""

    name = "sentences"
    space: ClassVar[Mapping[str, Any]] = {
        "lr": holdout.Float(1e-4, 1e-2, log=True, default=1e-3),
        "margin": holdout.Float(0.5, 5.0, default=2.0),
    }

    def model(self, params: Mapping[str, Any], train: holdout.Items) -> SentenceTransformer:
        numbers = {letter: number for number, letter in enumerate(("[UNK]", "[PAD]", *LETTERS))}
        words = Tokenizer(models.WordLevel(numbers, "[UNK]"))
        words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        config = BertConfig(
            vocab_size=len(numbers), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        )
        with tempfile.TemporaryDirectory() as folder:
            BertModel(config).save_pretrained(folder)
            tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")
            tokenizer.save_pretrained(folder)
            transformer = Transformer(folder, max_seq_length=64)
        return SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu")

    def loss(self, model: SentenceTransformer, params: Mapping[str, Any]) -> BatchAllTripletLoss:
        return BatchAllTripletLoss(model, margin=params["margin"])
