"""What is asked of every part, built-in or one's own: the checks behind ``holdout check`` and the contract tests."""
