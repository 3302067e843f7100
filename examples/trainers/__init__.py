"""Trainings with ten libraries' own trainers, made searchable; ``plain`` has each script as it was before.

The scripts differ in at most 15 lines. Their data and models are those of ``tiny``.
"""
