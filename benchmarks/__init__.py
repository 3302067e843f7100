"""Measurements, listed and run by `python -m benchmarks`; each module is a program (python -m benchmarks.losses)."""
