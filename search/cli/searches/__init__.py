"""Commands for searches and their results."""
