"""What searches and decoded images take on disk."""
