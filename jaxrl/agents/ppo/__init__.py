"""Proximal policy optimization: `settings`, which import no JAX, and `agent`."""
