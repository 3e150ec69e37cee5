"""Training of a run, from the first game to the last update."""
