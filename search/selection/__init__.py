"""The choice of one configuration a loss, and the seal of the test classes."""
