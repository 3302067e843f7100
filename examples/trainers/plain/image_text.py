"""One embedding for pictures and texts: a CLIP, trained on pairs of both."""

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from examples.trainers import tiny


def image_text(items, labels):
    model = SentenceTransformer(tiny.clip())
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=1e-3,
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=16,
        use_cpu=True,
        batch_sampler="no_duplicates",
    )
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(items, labels), loss=loss)


if __name__ == "__main__":
    image_text(*tiny.signs()).train()
