"""Sentence embeddings from pairs: SentenceTransformerTrainer with the multiple negatives ranking loss."""

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import holdout
from examples.trainers import tiny


@holdout.trainable(
    holdout.SentenceTransformerTrainable,
    lr=holdout.Float(1e-4, 1e-2, default=1e-3),
    scale=holdout.Int(5, 50, default=20),
)
def pairs(params, train, report):
    model = SentenceTransformer(tiny.bert())
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=params["lr"],
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        bf16=True,
        use_cpu=report.device.type == "cpu",
        batch_sampler="no_duplicates",
    )
    loss = MultipleNegativesRankingLoss(model, scale=params["scale"])
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(train.items, train.labels), loss=loss)
