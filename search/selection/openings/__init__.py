"""The openings of test sets: whose they were, what images they found, and the ledger that holds them."""
