"""The figures, a file each; their folders are the sections that show them."""
