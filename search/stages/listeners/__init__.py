"""What follows the trials of a search beside its progress and its tracking."""
