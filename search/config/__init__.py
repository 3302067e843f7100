"""The search file: its sections, their defaults, and its validation."""
