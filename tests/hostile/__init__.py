"""Tests with hostile input: odd files, values and names in every place where a command reads them."""
