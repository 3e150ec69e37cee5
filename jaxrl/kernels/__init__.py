"""Convolutions, pooling and fully connected layers for CPUs, in C++."""
