"""Mathematics of reinforcement learning, as pure functions."""
