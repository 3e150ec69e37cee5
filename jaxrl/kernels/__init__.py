"""Convolutions for CPUs, in C++."""
