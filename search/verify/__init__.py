"""A search recomputed from its records alone, and compared with what it wrote down."""
