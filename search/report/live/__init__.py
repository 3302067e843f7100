"""The live page of all searches."""
