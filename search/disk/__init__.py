"""Disk space of searches: the estimate before they begin, its usage, and their removal."""
