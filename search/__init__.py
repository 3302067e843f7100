"""Many training runs: what the command line and the library do, from the search file to the report."""

__version__ = "0.2.0"
