"""Disk space of searches: a check before they begin, its usage, and their removal."""
