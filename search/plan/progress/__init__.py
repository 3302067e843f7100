"""How far a search is, and what is left of it."""
