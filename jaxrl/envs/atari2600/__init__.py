"""Our own Atari 2600, in C++ (native/), behind the contract of engines."""
