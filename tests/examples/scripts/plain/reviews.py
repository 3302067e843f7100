"""Finetune a sentence-transformer on labelled sentences, after sbert.net's training overview."""

import csv
import os

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.evaluation import TripletEvaluator
from sentence_transformers.losses import BatchHardSoftMarginTripletLoss
from sentence_transformers.training_args import BatchSamplers
from transformers import EarlyStoppingCallback


def triplets(data):
    """Return an anchor, another sentence of its label and one of another label for each sentence that has them."""
    rows = list(zip(data["sentence"], data["label"]))
    found = {"anchors": [], "positives": [], "negatives": []}
    for i, (sentence, label) in enumerate(rows):
        same = [other for j, (other, its) in enumerate(rows) if its == label and j != i]
        different = [other for other, its in rows if its != label]
        if same and different:
            found["anchors"].append(sentence)
            found["positives"].append(same[i % len(same)])
            found["negatives"].append(different[i % len(different)])
    return found


def main():
    # 1. A model to finetune
    model = SentenceTransformer(os.environ.get("MODEL", "sentence-transformers/all-MiniLM-L6-v2"))

    # 2. The data: a file of sentences and labels
    with open("reviews.csv") as file:
        rows = list(csv.DictReader(file))
    sentences = [row["sentence"] for row in rows]
    labels = [int(row["label"]) for row in rows]
    dataset = Dataset.from_dict({"sentence": sentences, "label": labels}).train_test_split(0.2, seed=12)

    # 3. A loss
    loss = BatchHardSoftMarginTripletLoss(model)

    # 4. The arguments
    args = SentenceTransformerTrainingArguments(
        output_dir="models/reviews",
        num_train_epochs=4,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=32,
        learning_rate=2e-5,
        warmup_steps=0.1,
        batch_sampler=BatchSamplers.GROUP_BY_LABEL,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        load_best_model_at_end=True,
        logging_steps=10,
        report_to="none",
        seed=12,
    )

    # 5. An evaluator
    evaluator = TripletEvaluator(**triplets(dataset["test"]), name="reviews-dev")
    evaluator(model)

    # 6. The trainer
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"],
        loss=loss,
        evaluator=evaluator,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    trainer.train()

    # 7. The trained model
    model.save_pretrained("models/reviews/final")


if __name__ == "__main__":
    main()
