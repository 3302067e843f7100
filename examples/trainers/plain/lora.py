"""Sentence embeddings by LoRA: only adapters of low rank (peft) are trained."""

from peft import LoraConfig, inject_adapter_in_model
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from examples.trainers import tiny


def lora(texts, labels):
    model = SentenceTransformer(tiny.bert())
    inject_adapter_in_model(LoraConfig(r=8, lora_alpha=16, target_modules=["query", "key", "value"]), model)
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=1e-3,
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=16,
        use_cpu=True,
        batch_sampler="no_duplicates",
    )
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(texts, labels), loss=loss)


if __name__ == "__main__":
    lora(*tiny.sentences()).train()
