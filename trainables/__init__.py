"""One training run of an image-embedding model; usable without Ray, Optuna or MLflow."""
