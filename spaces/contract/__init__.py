"""Contract tests of parts, built-in or user-defined, as `holdout check` runs them."""
