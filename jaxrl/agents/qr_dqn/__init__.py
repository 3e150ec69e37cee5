"""Quantile regression DQN: `settings`, which import no JAX, and `agent`."""
