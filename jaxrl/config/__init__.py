"""The configuration: schema, files, validation and differences."""
