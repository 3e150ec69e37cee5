"""One-step Q, Sarsa and n-step Q: `settings`, which import no JAX, and `agent`."""
