"""A bench of searches: tables of real trainings, replayed by the product's own objects in simulated time."""
