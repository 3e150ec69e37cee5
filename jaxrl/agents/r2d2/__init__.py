"""Recurrent replay distributed DQN: `settings`, which import no JAX, and `agent`."""
