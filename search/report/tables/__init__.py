"""A comparison as tables of text, and as files."""
