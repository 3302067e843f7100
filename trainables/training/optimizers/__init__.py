"""The optimisers of the papers."""
