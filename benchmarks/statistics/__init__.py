"""Simulations of the error rates and the power of the statistics, and of samplers and pruners."""
