"""The sections of the search file, one a file."""
