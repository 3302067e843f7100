"""Engines, which run the trials of a queue (``base``), and searches as jobs on a cluster (``ray_jobs``)."""
