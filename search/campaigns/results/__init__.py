"""What a campaign came to."""
