"""The commands that take a model out, and use it."""
