"""Actor-critic with V-trace: `settings`, which import no JAX, and `agent`."""
