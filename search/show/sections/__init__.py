"""Sections of a report and their figures."""
