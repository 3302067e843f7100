"""Sentence embeddings from large batches of pairs, whose gradients are cached (GradCache) in small ones."""

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

from examples.trainers import tiny


def cached(texts, labels):
    model = SentenceTransformer(tiny.bert())
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=1e-3,
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=64,
        use_cpu=True,
        batch_sampler="no_duplicates",
    )
    loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=8, scale=20.0)
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(texts, labels), loss=loss)


if __name__ == "__main__":
    cached(*tiny.sentences()).train()
