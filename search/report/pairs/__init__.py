"""Which two rows of a comparison differ on the test classes."""
