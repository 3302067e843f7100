"""What may be searched: declared ranges, with the papers' defaults as trial 0."""
