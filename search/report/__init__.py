"""Results of searches: summaries, comparisons, tables and reports."""
