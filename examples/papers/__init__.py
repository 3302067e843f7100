"""Analytic figures of the papers, drawn with this project's own losses."""
