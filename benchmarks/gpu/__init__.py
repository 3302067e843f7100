"""What one GPU does with a training step, its images and its metrics: ``python -m benchmarks.gpu``."""
