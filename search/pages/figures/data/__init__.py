"""A data set's own images."""
