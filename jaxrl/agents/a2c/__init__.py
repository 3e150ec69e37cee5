"""Synchronous advantage actor-critic: `settings`, which import no JAX, and `agent`."""
