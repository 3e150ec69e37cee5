"""Memories of past steps, on the device."""
