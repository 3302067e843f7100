"""One embedding for pictures and texts: a CLIP, trained on pairs of both."""

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import holdout
from examples.trainers import tiny


@holdout.trainable(
    holdout.SentenceTransformerTrainable,
    lr=holdout.Float(1e-4, 1e-2, default=1e-3),
    scale=holdout.Int(5, 50, default=20),
)
def image_text(params, train, report):
    model = SentenceTransformer(tiny.clip())
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=params["lr"],
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=16,
        use_cpu=report.device.type == "cpu",
        batch_sampler="no_duplicates",
    )
    loss = MultipleNegativesRankingLoss(model, scale=params["scale"])
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(train.items, train.labels), loss=loss)
