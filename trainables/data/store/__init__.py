"""The image store: decoded images on disk, built once and shared by all trials of a node."""
