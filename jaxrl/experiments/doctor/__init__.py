"""`jaxrl doctor`: whether a machine can train."""
