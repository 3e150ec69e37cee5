"""Facts about the games of the Atari 2600."""
