"""jaxrl: reinforcement learning on Atari 2600, compiled from end to end by JAX."""
