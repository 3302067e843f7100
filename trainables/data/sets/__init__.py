"""The data sets and their base classes."""
