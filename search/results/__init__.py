"""What follows from the records of searches: pure functions, without input or output of their own."""
