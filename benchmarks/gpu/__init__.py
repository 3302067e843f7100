"""Benchmarks of training steps, their input and metrics on one GPU: ``python -m benchmarks.gpu``."""
