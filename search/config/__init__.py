"""The search file: its sections, their defaults, and all that can be wrong in it."""
