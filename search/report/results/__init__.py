"""What a summary and a comparison are made of: one frozen type a file."""
