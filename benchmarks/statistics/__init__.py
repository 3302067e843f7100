"""Simulations of what the statistics promise: error rates where there is nothing to find, and power where there is."""
