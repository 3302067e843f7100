"""A worker's attempts at trainings, and their logs."""
