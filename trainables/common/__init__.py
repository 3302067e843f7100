"""For every room: errors, files and storage, the process, vectors, and parts, rules and ranges of settings."""
