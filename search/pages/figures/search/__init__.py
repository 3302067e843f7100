"""How the search of one loss went, drawn."""
