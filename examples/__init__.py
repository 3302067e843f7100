"""User-defined parts, each in a file, for a search file to name by its import path."""
