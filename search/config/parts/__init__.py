"""The parts that a search file names: what there is, and one's own."""
