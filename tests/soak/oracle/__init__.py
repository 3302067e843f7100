"""What a search left, read from its raw files and databases by no code of the search's own."""
