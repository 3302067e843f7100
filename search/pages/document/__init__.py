"""The report as one file."""
