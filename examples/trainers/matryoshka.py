"""Sentence embeddings whose first 8 and 16 numbers are embeddings, too: the Matryoshka loss."""

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

import holdout
from examples.trainers import tiny


@holdout.trainable(
    holdout.SentenceTransformerTrainable,
    lr=holdout.Float(1e-4, 1e-2, default=1e-3),
    scale=holdout.Int(5, 50, default=20),
)
def matryoshka(params, train, report):
    model = SentenceTransformer(tiny.bert())
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=params["lr"],
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=16,
        use_cpu=report.device.type == "cpu",
        batch_sampler="no_duplicates",
    )
    of_all = MultipleNegativesRankingLoss(model, scale=params["scale"])
    loss = MatryoshkaLoss(model, of_all, matryoshka_dims=[32, 16, 8])
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(train.items, train.labels), loss=loss)
