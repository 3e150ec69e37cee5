"""A package that adds an algorithm and an engine to jaxrl by its entry points."""
