"""One search made ready."""
