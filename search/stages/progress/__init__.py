"""What is shown while a search runs: how far each loss is, what each slot trains, and how long all of it takes."""
