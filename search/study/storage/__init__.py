"""Where studies are kept: a database, the driver's picture of it, and how others read it."""
