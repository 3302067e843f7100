"""The commands that take a trained model out of a search, and use it."""
