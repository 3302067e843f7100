"""Sentence embeddings whose first 8 and 16 numbers are embeddings, too: the Matryoshka loss."""

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

from examples.trainers import tiny


def matryoshka(texts, labels):
    model = SentenceTransformer(tiny.bert())
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=1e-3,
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=16,
        use_cpu=True,
        batch_sampler="no_duplicates",
    )
    of_all = MultipleNegativesRankingLoss(model, scale=20.0)
    loss = MatryoshkaLoss(model, of_all, matryoshka_dims=[32, 16, 8])
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(texts, labels), loss=loss)


if __name__ == "__main__":
    matryoshka(*tiny.sentences()).train()
