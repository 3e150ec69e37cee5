"""Numbers and pictures of runs."""
