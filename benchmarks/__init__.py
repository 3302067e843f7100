"""What this project promises to be fast at, measured: each module is a program (python -m benchmarks.losses)."""
