"""The price of a configuration: the arithmetic of acting and learning, before anything is run."""
