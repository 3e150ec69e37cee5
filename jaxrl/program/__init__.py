"""The one compiled program that plays and learns."""
