"""What a table says of its test set: who opened it, and what was frozen before."""
