"""MLflow as a projection of the studies."""
