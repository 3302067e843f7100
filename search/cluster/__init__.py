"""The Ray cluster that a search runs on."""
