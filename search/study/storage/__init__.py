"""The database of studies: the driver's cached storage, and read-only access for other processes."""
