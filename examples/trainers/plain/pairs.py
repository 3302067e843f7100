"""Sentence embeddings from pairs: SentenceTransformerTrainer with the multiple negatives ranking loss."""

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from examples.trainers import tiny


def pairs(texts, labels):
    model = SentenceTransformer(tiny.bert())
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=1e-3,
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        bf16=True,
        use_cpu=True,
        batch_sampler="no_duplicates",
    )
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(texts, labels), loss=loss)


if __name__ == "__main__":
    pairs(*tiny.sentences()).train()
