"""Optuna: a study for each loss and stage, its samplers and pruners, and the queue of its trials."""
