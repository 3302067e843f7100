"""Searches as jobs of a cluster: their submission, with the code that travels, and their logs."""
