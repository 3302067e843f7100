"""The image store that all trials of a node share."""
