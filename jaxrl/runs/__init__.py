"""The run directory: its files, written and read."""
