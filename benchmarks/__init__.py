"""Performance measurements; each module is a program (python -m benchmarks.losses)."""
