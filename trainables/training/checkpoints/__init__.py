"""What a training keeps, written beside it."""
