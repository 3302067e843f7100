"""What a search came to."""
