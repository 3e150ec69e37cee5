"""Parallelized Q-network: `settings`, which import no JAX, and `agent`."""
