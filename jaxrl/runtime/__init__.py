"""This process, its devices and the other processes."""
