"""One training: its settings, the loop, its checkpoints and its log."""
