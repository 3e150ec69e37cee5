"""EnvPool's Atari games behind the contract of engines."""
