"""Implicit quantile networks: `settings`, which import no JAX, and `agent`."""
