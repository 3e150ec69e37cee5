"""Measurements of programs and machines, and sweeps of runs."""
