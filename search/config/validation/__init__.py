"""A file against its sections: what is wrong with it, in sentences, and what the rest of it says."""
