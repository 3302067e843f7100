"""Tests with hostile input, and a program that attacks the commands with it and mutates a search's records."""

import os

# A process without other threads can fork: set before numpy, PyTorch and Arrow are imported.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
