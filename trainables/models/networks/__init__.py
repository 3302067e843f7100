"""Networks: those written here, and those of libraries."""
