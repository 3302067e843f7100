"""A test set that another account owns: it scores the frozen models of searches, and signs what came out."""
