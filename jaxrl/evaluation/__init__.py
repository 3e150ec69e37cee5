"""Trained policies play: evaluations, films and traces."""
