"""One HTML page about runs that opens anywhere."""
