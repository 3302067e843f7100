"""Trained models as MLflow keeps, registers and serves them."""
