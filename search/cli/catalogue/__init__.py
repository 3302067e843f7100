"""Commands that list what a search file can name, and check one's own parts."""
