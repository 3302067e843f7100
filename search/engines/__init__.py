"""Engines: what runs the trials of a queue."""
