"""Search spaces: declared ranges, with the papers' defaults as trial 0."""
