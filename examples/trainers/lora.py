"""Sentence embeddings by LoRA: only adapters of low rank (peft) are trained."""

from peft import LoraConfig, inject_adapter_in_model
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import holdout
from examples.trainers import tiny


@holdout.trainable(
    holdout.SentenceTransformerTrainable, lr=holdout.Float(1e-4, 1e-2, default=1e-3), rank=holdout.Int(4, 16, default=8)
)
def lora(params, train, report):
    model = SentenceTransformer(tiny.bert())
    inject_adapter_in_model(
        LoraConfig(r=params["rank"], lora_alpha=16, target_modules=["query", "key", "value"]), model
    )
    arguments = SentenceTransformerTrainingArguments(
        learning_rate=params["lr"],
        warmup_steps=0.1,
        lr_scheduler_type="cosine",
        per_device_train_batch_size=16,
        use_cpu=report.device.type == "cpu",
        batch_sampler="no_duplicates",
    )
    loss = MultipleNegativesRankingLoss(model, scale=20.0)
    return SentenceTransformerTrainer(model, arguments, tiny.pairs(train.items, train.labels), loss=loss)
