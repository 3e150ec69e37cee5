"""Trained policies play: evaluations, films, traces and branches."""
