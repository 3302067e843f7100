"""Where time and epochs went, drawn."""
